"""`mq console`: a page that shows all monitored programs, live."""

from __future__ import annotations

import signal

import click

from mqcore.cli.common import note
from mqcore.cli.exporter import host_and_port
from mqcore.cli.journal_where import Where

PORT = 9463


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-b", "--bind", "where", default=f"127.0.0.1:{PORT}", show_default=True,
              metavar="HOST:PORT", callback=host_and_port,
              help="Serve the page here. Port 0 is a free one.")
@click.option("-j", "--journal", "journals", multiple=True, metavar="WHERE",
              type=Where(exists=True, file_okay=False),
              help="Also show this journal: a folder, or the address of a server. Repeatable.")
@click.option("-s", "--spark", "checkpoints", multiple=True, metavar="FOLDER",
              type=click.Path(file_okay=False),
              help="Also show the Spark streaming query with this checkpoint folder. Repeatable.")
@click.option("--control", is_flag=True,
              help="Let the page send messages to sockets and watch publishers.")
@click.option("--cert", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
              help="Serve over TLS with this certificate, a PEM file.")
@click.option("--cert-key", metavar="FILE",
              type=click.Path(exists=True, dir_okay=False),
              help="Its private key.  [default: in the certificate's file]")
@click.option("--insecure", is_flag=True,
              help="Allow an address that other machines reach, without TLS.")
def console(urls: tuple[str, ...], where: tuple[str, int], journals: tuple[str, ...],
            checkpoints: tuple[str, ...], control: bool, cert: str | None,
            cert_key: str | None, insecure: bool) -> None:
    """Serve a page that shows all monitored programs, until Ctrl-C: sockets, rates, queues, drops,
    slow peers, who is connected to whom, events, journals, Spark queries.

    A program is monitored if MQCORE_MONITOR=1 is in its environment, or if it says
    Context(monitor=True). Without URL, the page shows all monitored programs of this user. The
    printed address has a secret: anyone with it can read all that the page shows.

    \b
      mq console
      mq console --journal data --spark checkpoints/hours
      mq console --control --bind 127.0.0.1:0
    """
    try:
        from mqcore.console import Console
    except ImportError as error:
        raise click.ClickException(f'this command needs {error.name}: '
                                   f'pip install "mqcore[cli,console]"') from None
    host, port = where
    with Console(urls, host=f"[{host}]" if ":" in host else host, port=port, journals=journals,
                 checkpoints=checkpoints, control=control, tls_cert=cert or "",
                 tls_key=cert_key or "", insecure=insecure) as served:
        note(f"console at {served.url}")
        while True:
            signal.pause()
