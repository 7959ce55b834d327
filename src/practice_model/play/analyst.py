"""The built-in code-interpreter conversation: a script with a table, a second one that writes a file, a report.

A test runs the scripts and compares their output with the logs.
"""

from practice_model.dialects.responses import items
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json

FILENAME = "station_summary.csv"

SCRIPT = '''"""Compare the daily temperatures of three weather stations over two weeks."""

import math
from collections import defaultdict

# Readings in degrees Celsius, one row per station, fourteen days from the first of March.
READINGS = {
    "harbour": [7.4, 8.1, 6.9, 7.7, 9.3, 10.2, 9.8, 8.6, 8.9, 9.4, 11.0, 10.7, 9.9, 9.1],
    "hilltop": [3.2, 4.0, 2.7, 3.1, 5.6, 6.3, 5.9, 4.4, 4.8, 5.2, 7.1, 6.6, 5.7, 4.9],
    "airport": [6.1, 7.0, 5.8, 6.4, 8.2, 9.0, 8.8, 7.3, 7.7, 8.1, 9.9, 9.5, 8.6, 7.8],
}


def mean(values):
    """Return the arithmetic mean."""
    return sum(values) / len(values)


def deviation(values):
    """Return the sample standard deviation."""
    centre = mean(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1))


def median(values):
    """Return the middle value, or the mean of the two middle ones."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def slope(values):
    """Return the least-squares slope in degrees per day."""
    days = range(len(values))
    middle_day, centre = mean(days), mean(values)
    above = sum((day - middle_day) * (value - centre) for day, value in zip(days, values))
    below = sum((day - middle_day) ** 2 for day in days)
    return above / below


def correlation(left, right):
    """Return Pearson's correlation of two series of the same length."""
    left_mean, right_mean = mean(left), mean(right)
    shared = sum((a - left_mean) * (b - right_mean) for a, b in zip(left, right))
    spread = sum((a - left_mean) ** 2 for a in left) * sum((b - right_mean) ** 2 for b in right)
    return shared / math.sqrt(spread)


summary = defaultdict(dict)
for name, values in READINGS.items():
    summary[name]["days"] = len(values)
    summary[name]["mean"] = round(mean(values), 2)
    summary[name]["median"] = round(median(values), 2)
    summary[name]["deviation"] = round(deviation(values), 2)
    summary[name]["slope"] = round(slope(values), 3)
    summary[name]["warmest_day"] = max(range(len(values)), key=values.__getitem__) + 1

print(f"{'station':<10}{'days':>6}{'mean':>8}{'dev':>8}{'slope':>8}{'warmest':>9}")
for name, row in summary.items():
    print(
        f"{name:<10}{row['days']:>6}{row['mean']:>8.2f}{row['deviation']:>8.2f}"
        f"{row['slope']:>8.3f}{row['warmest_day']:>9}"
    )

names = list(READINGS)
for first, left in enumerate(names):
    for right in names[first + 1 :]:
        print(f"correlation {left}/{right}: {correlation(READINGS[left], READINGS[right]):.3f}")

print(f"readings in total: {sum(len(values) for values in READINGS.values())}")
'''

SAVE_SCRIPT = f"""import csv

path = "/mnt/data/{FILENAME}"
with open(path, "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["station", "mean", "deviation", "slope"])
    for name, row in summary.items():
        writer.writerow([name, row["mean"], row["deviation"], row["slope"]])
print(f"wrote {{len(summary)}} rows to {{path}}")
"""

LOGS = """\
station     days    mean     dev   slope  warmest
harbour       14    9.07    1.23   0.208       11
hilltop       14    4.96    1.36   0.211       11
airport       14    7.87    1.25   0.201       11
correlation harbour/hilltop: 0.991
correlation harbour/airport: 0.997
correlation hilltop/airport: 0.995
readings in total: 42
"""

SAVE_LOGS = f"wrote 3 rows to /mnt/data/{FILENAME}\n"

REPORT = f"""I compared the three stations over fourteen days, 42 readings in total.

- harbour is the warmest: 9.07 degrees on average, with its peak on day 11.
- hilltop is the coldest, and it moves with the other two: every correlation is above 0.99.
- All three warm up by about 0.2 degrees a day.

The table is here: [{FILENAME}](sandbox:/mnt/data/{FILENAME})

You asked: "{{asked}}"."""


def analyse(id_generator: IdGenerator, user_text: str, container_id: str, *, include_outputs: bool) -> list[Json]:
    """Return the two code runs and the report with its file citation."""
    analysis = items.build_code_call(id_generator, SCRIPT, container_id, logs=LOGS, include_outputs=include_outputs)
    saving = items.build_code_call(
        id_generator, SAVE_SCRIPT, container_id, logs=SAVE_LOGS, include_outputs=include_outputs
    )
    text, citations = items.cite_files(id_generator, REPORT.replace("{asked}", user_text), container_id, [FILENAME])
    return [analysis, saving, items.build_message(id_generator, text, citations)]
