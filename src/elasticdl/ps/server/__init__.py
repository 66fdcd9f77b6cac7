"""The ps process: its socket, its connection to the master, backups, and slots that move."""
