"""The studio: a local page on which a person and a model draw together.

The server keeps nothing of its visitors: every request carries the drawing that it is about, so there is nothing to
bound, to evict or to mix up. `service.py` is what is done with a model, without HTTP; `schemas.py` what is asked and
answered; `workers.py` who waits for whom; `security.py` who may ask, and how much; `app.py` the routes; `serve.py` the
process. The page itself (`page/`) is plain files.
"""
