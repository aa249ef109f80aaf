"""The studio: a local page on which a person and a model draw together.

The server stores nothing about its visitors. Every request carries its drawing, so there is no session to bound, to
evict or to mix up. `service.py` does the work with a model, without HTTP. `schemas.py` defines requests and answers,
`workers.py` the order of the work, `security.py` who may ask and how much, `connections.py` how many may connect,
`app.py` the routes and `serve.py` the process. The page itself (`page/`) is plain files.
"""
