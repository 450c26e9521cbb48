"""What every other part may use: errors, paths, progress, locks, clocks, statistics, Java."""
