"""Writes synthetic visits of a shop: clicks.csv for training, and new.csv of the day after.

python shop.py
"""

import csv
import random

CITIES = [f"{name}-{number}" for name in ("Aachen", "Bochum", "Celle", "Düren") for number in range(40)]
DEVICES = ["phone", "tablet", "desktop"]
GOODS = ["book", "bread", "lamp", "pen", "shoe", "tea"]


def draw_visit(seed: int) -> dict[str, object]:
    """Draws a user, a good and a price. Users click on goods they have seen, and on expensive ones on a desktop."""
    generator = random.Random(seed)
    city, device, good = generator.choice(CITIES), generator.choices(DEVICES, [5, 1, 3])[0], generator.choice(GOODS)
    price = round(generator.lognormvariate(3, 1), 2)
    seen = generator.choices(GOODS, k=generator.randrange(5))
    probability = (
        0.08 + 0.25 * (good in seen) + 0.15 * (device == "desktop" and price > 30) + 0.1 * (hash_city(city) % 5 == 0)
    )
    return {
        "clicked": int(generator.random() < probability),
        "time": f"2026-11-{1 + seed // 1500 % 28:02} {generator.randrange(24):02}:{generator.randrange(60):02}:00",
        "city": "" if generator.random() < 0.03 else city,
        "device": device,
        "good": good,
        "price": "" if generator.random() < 0.05 else price,
        "seen": "|".join(seen),
    }


def hash_city(city: str) -> int:
    return sum(city.encode())


def write_visits(path: str, seeds: range) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = [draw_visit(seed) for seed in seeds]
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)


write_visits("clicks.csv", range(20_000))
write_visits("new.csv", range(20_000, 20_200))
