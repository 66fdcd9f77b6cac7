"""What one worker trains, the steps that change it, and the checks that keep all workers alike."""
