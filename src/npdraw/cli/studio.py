"""The verb `studio`."""

from dataclasses import dataclass

from npdraw.cli.options import Device, Flag, Model
from npdraw.extras import need


@dataclass
class Studio:
    """Open a page in the browser on which you and a model draw together, part by part.

    The page is served by this process alone and works without a network. It answers this machine only, unless --host
    says otherwise; then it needs the token of the link that is printed.

    Example: npdraw studio digits
    """

    model: Model
    host: str = "127.0.0.1"
    """Where to listen: 0.0.0.0 lets other machines in, with the token."""
    port: int = 8642
    """At which port; 0 takes one that is free."""
    no_browser: Flag = False
    """Open no browser."""
    device: Device = "auto"

    def run(self) -> None:
        need("the studio", "studio", "fastapi", "uvicorn")
        from npdraw.device import pick_device
        from npdraw.studio.serve import serve

        serve(self.model, self.host, self.port, not self.no_browser, pick_device(self.device))
