"""The rows a ps holds: tables over the native core, which pushes are in them, and backups of other ps. No sockets."""
