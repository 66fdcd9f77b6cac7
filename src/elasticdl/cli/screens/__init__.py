"""What a terminal shows: tables, panels, progress bars and live views."""
