"""The demo pair: a small target from the package index, and a draft that comes with us."""
