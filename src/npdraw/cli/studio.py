"""The verb `studio`."""

from dataclasses import dataclass

from npdraw.cli.options import Device, Flag, Model
from npdraw.extras import need


@dataclass
class Studio:
    """Open a page in the browser where you and a model draw together, part by part.

    Only this process serves the page, and it works without a network. By default it answers only this machine. With
    another --host, visitors need the token in the printed link. It goes over plain HTTP, so trust the network.

    Example: npdraw studio digits
    """

    model: Model
    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 lets other machines in, with the token."""
    port: int = 8642
    """Port to listen on; 0 takes a free one."""
    no_browser: Flag = False
    """Do not open a browser."""
    device: Device = "auto"

    def run(self) -> None:
        need("the studio", "studio", "fastapi", "uvicorn")
        from npdraw.device import pick_device
        from npdraw.studio.serve import serve

        serve(self.model, self.host, self.port, not self.no_browser, pick_device(self.device))
