"""Computes days from dates and back with operators that NumPy, TensorFlow and torch share: int64, floor division.

The calendar is the Gregorian one for all years. The algorithms are from Howard Hinnant's "chrono-compatible low-level
date algorithms".
"""

from __future__ import annotations

from typing import Any

DAY_S = 86_400
_ERA = 146_097  # days of 400 years
_EPOCH = 719_468  # days from 0000-03-01 to 1970-01-01


def days_from_date(year: Any, month: Any, day: Any) -> Any:
    """Returns the days since 1970."""
    year = year - (14 - month) // 12  # years begin in March
    era = year // 400
    year = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA + year * 365 + year // 4 - year // 100 + day_of_year - _EPOCH


def date_from_days(days: Any) -> tuple[Any, Any, Any]:
    """Returns year, month and day from the days since 1970."""
    days = days + _EPOCH
    era = days // _ERA
    days = days - era * _ERA
    year = (days - days // 1_460 + days // 36_524 - days // 146_096) // 365
    day_of_year = days - (365 * year + year // 4 - year // 100)
    from_march = (5 * day_of_year + 2) // 153
    month = (from_march + 2) % 12 + 1
    return year + era * 400 + (14 - month) // 12, month, day_of_year - (153 * from_march + 2) // 5 + 1


def full_year(two_digits: Any) -> Any:
    """Returns the year from 1969 to 2068 that two digits stand for, as POSIX does."""
    return two_digits + 1_900 + (168 - two_digits) // 100 * 100


def is_valid_date(year: Any, month: Any, day: Any, hour: Any, minute: Any, second: Any) -> Any:
    """Returns whether the date and time exist. A leap second (60) does not."""
    _, same_month, same_day = date_from_days(days_from_date(year, month, day))
    return (same_month == month) & (same_day == day) & (hour < 24) & (minute < 60) & (second < 60)
