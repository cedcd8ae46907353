"""Transports: the paths of the rows of DataFrames to the workers.

    packed   the workers read the Parquet files behind the DataFrames
    rows     Spark reads the rows and passes them on; works for any DataFrame

To add a transport, write a `Transport` in a file of this folder and add it to `TRANSPORTS`.
"""

from eddy.spark.transports.base import Transport
from eddy.spark.transports.packed import PackedTransport
from eddy.spark.transports.rows import RowsTransport

TRANSPORTS: dict[str, Transport] = {transport.name: transport for transport in (PackedTransport(), RowsTransport())}
"""All transports by name, in the order in which `transport="auto"` tries them."""
