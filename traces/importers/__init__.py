"""Other people's recordings, costs and measurements, read into this project's formats.

`python -m traces import FORMAT FILE... --out PATH`; README.md beside this file has the formats.
What a source does not hold is named in the result (`lacks`), never filled in silently.
"""
