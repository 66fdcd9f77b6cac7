"""Stored files: found, listed, unpacked, indexed, and read by position from disks and object stores."""
