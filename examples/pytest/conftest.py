pytest_plugins = ["weakincentives.pytest_plugin"]
