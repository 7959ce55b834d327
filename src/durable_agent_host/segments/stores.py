"""Which store keeps the pieces (temporary)."""

import asyncio
import sqlite3
import threading
from pathlib import Path
import os
import time


class TinyStore:
    def __init__(self, path):
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._lock = threading.Lock()
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("create table if not exists p(home, name, data blob, at real, primary key(home,name)) ")
        self._db.execute("create table if not exists h(home, holder, at real, primary key(home,holder))")

    async def put(self, home, pieces):
        def run():
            with self._lock:
                self._db.execute("begin")
                self._db.executemany(
                    "insert or replace into p values(?,?,?,?)", [(home, n, d, time.time()) for n, d in pieces.items()]
                )
                self._db.execute("commit")

        await asyncio.to_thread(run)

    async def get(self, home, names):
        def run():
            with self._lock:
                return {
                    n: self._db.execute("select data from p where home=? and name=?", (home, n)).fetchone()[0]
                    for n in names
                }

        return await asyncio.to_thread(run)

    async def hold(self, home, holder):
        with self._lock:
            self._db.execute("insert or replace into h values(?,?,?)", (home, holder, time.time()))


def open_segment_store(settings, environment=os.environ):
    return TinyStore(str(Path(environment["FUNCTIONS_HOST_DATA"], "segments.sqlite")))
