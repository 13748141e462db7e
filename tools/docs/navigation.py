"""The sections of the site: their pages, in the order of the side bar.

The side bar shows a section's entries when you are in it. So a section has at most seven entries, and a group in it at
most six. A page that lists what is below it is written from this table.
"""

from __future__ import annotations

from collections.abc import Iterator

#: A page or, with its own list, a group of pages: (name without .md, title of a group, one line, pages below).
Entry = tuple[str, str, str, list["Entry"]]


def page(name: str, line: str) -> Entry:
    return (name, "", line, [])


SECTIONS: list[Entry] = [
    (
        "first",
        "Start",
        "Three tutorials, a list of tasks, and help if something does not work.",
        [
            page("start", "Tutorial: store messages, read them, and stop the server in between. 15 minutes."),
            page("service", "Tutorial: a service with retries, dead letters and a clean stop. 15 minutes."),
            page("spark-job", "Tutorial: a Spark job that you kill, and that stores each row once. 15 minutes."),
            page("tasks", "How do I ...? A link for each of the usual tasks."),
            page("troubleshooting", "Nothing arrives, a consumer is stuck, messages arrive twice."),
            (
                "coming-from",
                "Coming from another client",
                "Your calls and their names here.",
                [
                    page("from-nats-py", "From nats-py."),
                    page("from-go", "From nats.go: tables by package."),
                    page("nats-go-names", "Every name of nats.go."),
                    page(
                        "async-nats-names", "From async-nats (Rust): every name of its JetStream and service modules."
                    ),
                    page("from-kafka", "From a Kafka client."),
                    page("from-celery", "From Celery or RQ."),
                ],
            ),
        ],
    ),
    (
        "guides",
        "Guides",
        "One page for each thing that you can build, with examples that run.",
        [
            page("jetstream", "JetStream: streams, consumers, publishing, acknowledging."),
            (
                "connections",
                "Connections",
                "Connect, talk without a stream, and serve requests.",
                [
                    page("connecting", "Credentials, TLS, reconnecting, timeouts."),
                    page("core", "Core NATS: publish, subscribe, request, queue groups."),
                    page("services", "Services that every NATS tool can discover."),
                    page("threads", "Threads, forks, signals and the end of a program."),
                ],
            ),
            (
                "stores",
                "Stores",
                "Keys and files in streams.",
                [
                    page("keyvalue", "Key-value buckets: settings, watches, optimistic locking."),
                    page("objectstore", "Object stores: files of any size, with progress."),
                    page("backup", "Backups of streams, and restores."),
                ],
            ),
            (
                "working",
                "Workers",
                "Process messages in many threads and processes.",
                [
                    page("workers", "Worker pools: retries, dead letters, a clean stop."),
                    page("groups", "Partitioned groups: order by key over many processes."),
                    page("coordination", "Locks, elections, semaphores and periodic jobs."),
                ],
            ),
            (
                "data",
                "Data and Spark",
                "Streams as tables.",
                [
                    page("arrow", "Arrow tables, for pandas, polars and DuckDB."),
                    page("spark", "The data source for Spark: reading, writing, all options."),
                    page("spark-recipes", "Ten Spark recipes: windows, upserts, joins, dead letters and more."),
                    page("spark-guarantees", "Spark: the conditions of each guarantee, and the test that proves it."),
                    page("spark-deployment", "Spark on a cluster: check it, install, permissions, sizing."),
                    page("json-types", "JSON in Spark: the limits of each type, next to from_json."),
                ],
            ),
            (
                "solutions",
                "Patterns and recipes",
                "Complete programs to start from.",
                [
                    page("patterns", "Work queue, outbox, exactly once, schedules, large files."),
                    page("recipes", "Flask, Django, FastAPI, notebooks, Celery, gunicorn."),
                    page("dataframe-once", "Write a DataFrame so that a second run stores nothing twice."),
                    page("testing", "Test your program with a real server and a broken network."),
                ],
            ),
            page("operations", "Operations: checks, logs, metrics, deploying, stopping."),
        ],
    ),
    (
        "reference",
        "Reference",
        "Look up a name, an error, a setting or a version.",
        [
            page("api/index", "API reference: every public name."),
            page("api/command-line", "The command line: every command with its options."),
            page("settings", "Settings of connections, streams and consumers, each with an example."),
            page("errors", "Errors: what each means for your data, and what to do."),
            page("servers", "Versions of nats-server and of Python."),
            page("glossary", "Glossary."),
            page("changelog", "Changelog."),
        ],
    ),
    (
        "explanation",
        "Explanation",
        "The promises of the library, their cost, and the reasons behind the design.",
        [
            page("reliability", "Reliability: what is promised, and what is not."),
            page("performance", "Performance: numbers next to other clients, and what to set."),
            page("security", "Security: what the client trusts, and least privilege."),
            page("architecture", "Architecture: layers, threads and locks."),
            page("decisions", "Decisions, and the trade-offs behind them."),
            page("proof", "Proof: how the promises are tested."),
        ],
    ),
    (
        "contribute",
        "Contributing",
        "How to change the library, and how to report a problem.",
        [
            page("contributing", "How to run, test and measure the project."),
            page("security-policy", "How to report a vulnerability."),
            page("conformance", "Which cases of the conformance framework a test covers."),
            page("exactly", "Inside: exactly-once writes for batch engines."),
            page("planning", "Inside: read plans for batch engines."),
        ],
    ),
]


def section_pages() -> dict[str, str]:
    """file name -> text of the pages that list what is below them."""
    return {f"{name}.md": listing(title, line, below) for name, title, line, below in groups(SECTIONS)}


def groups(entries: list[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if entry[3]:
            yield entry
            yield from groups(entry[3])


def listing(title: str, line: str, below: list[Entry]) -> str:
    lines = [f"# {title}\n", f"{line}\n"]
    for name, group, text, children in below:
        lines.append(f"- [{group}]({name}.md): {text}" if group else f"- [](/{name}.md): {text}")
        lines += [f"  - [](/{child}.md): {words}" for child, _, words, _ in children]
    return "\n".join([*lines, "", toctree([name for name, *_ in below])])


def toctree(names: list[str]) -> str:
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
