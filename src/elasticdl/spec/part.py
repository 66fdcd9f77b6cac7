"""What the parts of a JobSpec are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
