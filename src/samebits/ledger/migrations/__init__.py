"""Steps from one form of the tables to the next; numbered, and only ever added to."""
