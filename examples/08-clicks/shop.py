"""Made-up visits of a shop: clicks.csv to learn from, and new.csv of the day after.

python shop.py
"""

import csv
import random

CITIES = [f"{name}-{number}" for name in ("Aachen", "Bochum", "Celle", "Düren") for number in range(40)]
DEVICES = ["phone", "tablet", "desktop"]
GOODS = ["book", "bread", "lamp", "pen", "shoe", "tea"]


def visit(seed: int) -> dict[str, object]:
    """A person, a thing, a price. Who has looked at a thing before clicks on it; dear things are for desktops."""
    draw = random.Random(seed)
    city, device, good = draw.choice(CITIES), draw.choices(DEVICES, [5, 1, 3])[0], draw.choice(GOODS)
    price = round(draw.lognormvariate(3, 1), 2)
    seen = draw.choices(GOODS, k=draw.randrange(5))
    chance = 0.08 + 0.25 * (good in seen) + 0.15 * (device == "desktop" and price > 30) + 0.1 * (hash_of(city) % 5 == 0)
    return {
        "clicked": int(draw.random() < chance),
        "time": f"2026-11-{1 + seed // 1500 % 28:02} {draw.randrange(24):02}:{draw.randrange(60):02}:00",
        "city": "" if draw.random() < 0.03 else city,
        "device": device,
        "good": good,
        "price": "" if draw.random() < 0.05 else price,
        "seen": "|".join(seen),
    }


def hash_of(city: str) -> int:
    return sum(city.encode())


def write(path: str, seeds: range) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = [visit(seed) for seed in seeds]
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)


write("clicks.csv", range(20_000))
write("new.csv", range(20_000, 20_200))
