"""Which cluster a program of e2e/ is about."""

from .bare import BareDriver
from .base import ROOT
from .kind import KindDriver


def add_options(parser):
    parser.add_argument("--driver", choices=["bare", "kind"], default="bare")
    parser.add_argument("--state", default=str(ROOT / "build" / "e2e"), metavar="FOLDER",
                        help="where everything of the cluster is kept (default: build/e2e)")


def chosen(options):
    if options.driver == "kind":
        return KindDriver(options.state)
    return BareDriver(options.state, getattr(options, "instance", None), getattr(options, "extra", ()))
