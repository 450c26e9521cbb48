from dataclasses import dataclass

LARGEST: int

@dataclass(frozen=True, slots=True)
class Position:
    rest: int = 0
    part: bytes = b""
    @property
    def boundary(self) -> bool: ...

def window(frame_max: int) -> int: ...
def walk(whole: bytes, at: int, most: int, stop: int) -> tuple[int, int, int]: ...
def locate(data: bytes, frame_max: int, channel_max: int) -> Position | None: ...
