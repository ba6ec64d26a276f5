"""What every package of the project uses: errors, files, tables."""
