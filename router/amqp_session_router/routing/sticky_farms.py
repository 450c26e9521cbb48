"""The farms that remember where a key went, and what each remembers."""

from __future__ import annotations

from pathlib import Path

from amqp_session_router.config.settings import Farm, Settings, state_file
from amqp_session_router.routing.stickiness import SharedKeys, Stickiness


class StickyFarms:
    """The stickiness of each farm that has it. It is kept over a reload, unless its file becomes another one."""

    def __init__(self, shared: SharedKeys | None, worker: int) -> None:
        """`shared`: the keys of all workers, of which this one is number `worker`."""
        self._shared, self._worker = shared, worker
        self.by_name: dict[str, Stickiness] = {}

    def apply(self, settings: Settings) -> None:
        """Remember for the farms of `settings` from here on."""
        kept: dict[str, Stickiness] = {}
        for farm in settings.farms.values():
            if farm.cached:
                kept[farm.name] = self._of(farm, _path(settings, farm, self._worker))
                kept[farm.name].know(backend.name for backend in farm.members)
        self.close()
        self.by_name = kept

    def _of(self, farm: Farm, path: Path | None) -> Stickiness:
        """Return what the farm has remembered so far at `path`."""
        old = self.by_name.get(farm.name)
        if old is None or old.path != path:
            return Stickiness(farm.cache_timeout, path, most=farm.cache_entries, shared=self._shared, farm=farm.name)
        del self.by_name[farm.name]
        old.timeout, old.most = farm.cache_timeout, farm.cache_entries
        return old

    def reopen(self) -> None:
        """Read the files again: the predecessor wrote them until now."""
        for one in self.by_name.values():
            one.reopen()

    def close(self) -> None:
        """Close the files; they are written no more."""
        for one in self.by_name.values():
            one.close()

    def backend_of(self, farm: str, key: str) -> str | None:
        """Return the name of the backend that `key` went to in this farm; None if that is not known."""
        found = self.by_name.get(farm)
        return None if found is None else found.get(key)

    def remember(self, farm: str, key: str, backend: str) -> None:
        """`key` went to `backend`. No effect in a farm that does not remember."""
        if farm in self.by_name:
            self.by_name[farm].put(key, backend)


def _path(settings: Settings, farm: Farm, worker: int) -> Path | None:
    """Return the file of a farm's keys; each worker but the first has a directory of its own."""
    name = f"sticky-{farm.name}.jsonl"
    return state_file(settings, f"worker-{worker}/{name}" if worker else name) if farm.cache_persisted else None
