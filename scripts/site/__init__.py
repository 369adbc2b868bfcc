"""The documentation site: `python -m scripts.site` builds and checks it.

stage.py       collects the pages: docs/, those of the root, the examples, the generated reference
navigation.py  the sections of mkdocs.yml with every page in its place
commands.py    the reference of the command line, from the parsers of all commands
api.py         the reference of the Python API: which names are on which page
check.py       broken links, and whatever the built pages would load from elsewhere
doctests.py    doctests of docstrings as code
signatures.py  plain defaults in signatures
build.py       build, check and serve
"""
