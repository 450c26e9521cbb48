from collections.abc import Callable

LARGE: int
LOOK_LARGE: int
CROWD: int
MANY: int
FEW: int
MOST_PROVEN: int

class Hold:
    def __init__(self, hold: memoryview, cells: memoryview) -> None: ...

class Light:
    rest: int
    part: bytes
    total: int
    frame_max: int
    last_method: int
    crowd: int
    metered: bool
    unseen: bool
    at_turns: list[Callable[[], bool]]
    @property
    def look(self) -> int: ...
    def __init__(self, hold: Hold, fd_in: int, fd_out: int, cell: int, frame_max: int) -> None: ...
    def readable(self) -> None: ...
    def frames(self, got: int) -> tuple[int, int, int] | None: ...
    def stand(self, got: int, last: int, at: int) -> None: ...
    def look_again(self) -> None: ...
    def crowded(self) -> None: ...
    def note(self) -> None: ...
