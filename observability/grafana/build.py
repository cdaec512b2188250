"""Grafana's dashboard JSON from `panels.py`, through Grafana's own foundation SDK (development dependency).

`python -m observability.grafana.build > observability/grafana/pellucid.json`
"""

import itertools
import json
import sys
from typing import Any

from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphGradientMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from observability.grafana.panels import ROWS, Draw, Panel, Query

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
PANEL_HEIGHT = 8
STAT_HEIGHT = 4
SCHEMA_UID = "pellucid"


def build_dashboard() -> str:
    """Return the dashboard's JSON text, the same bytes for the same panels."""
    builder = (
        board.Dashboard("Pellucid")
        .uid(SCHEMA_UID)
        .description("One LLM server: what it does now, how long people wait, and why.")
        .tags(["pellucid", "llm"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .editable()
        .with_variable(board.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("model", "Model", "label_values(pellucid_model_info, model)"))
        .with_variable(
            _variable("instance", "Instance", 'label_values(pellucid_model_info{model=~"$model"}, instance)')
        )
    )
    numbers = itertools.count(1)
    for row in ROWS:
        builder.with_row(board.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            builder.with_panel(_panel(panel).id(next(numbers)))
    document: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(builder.build()))
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _variable(name: str, label: str, query: str) -> board.QueryVariable:
    return (
        board.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".*")
        .multi(True)
    )


def _panel(panel: Panel) -> Any:
    """Return the SDK's builder of one panel."""
    builder: Any
    if panel.draw is Draw.STAT:
        builder = stat.Panel().reduce_options(ReduceDataOptions().calcs(["lastNotNull"])).height(STAT_HEIGHT)
    elif panel.draw is Draw.HEATMAP:
        builder = heatmap.Panel().height(PANEL_HEIGHT)
    else:
        builder = _time_series(panel).height(PANEL_HEIGHT)
    builder.title(panel.title).description(panel.conclude).unit(panel.unit).span(panel.width).datasource(DATASOURCE)
    if panel.thresholds:
        steps = [Threshold(value=value, color=color) for value, color in panel.thresholds]
        if panel.draw is Draw.STAT:
            steps[0].value = None
        else:
            steps.insert(0, Threshold(value=None, color="transparent"))
        builder.thresholds(board.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    for number, query in enumerate(panel.queries):
        builder.with_target(_target(query, chr(ord("A") + number), is_heatmap=panel.draw is Draw.HEATMAP))
    return builder


def _time_series(panel: Panel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(10)
        .gradient_mode(GraphGradientMode.OPACITY)
        .min(0)
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .calcs(["mean", "max"])
        )
    )
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if panel.draw is Draw.STACKED:
        builder.stacking(StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    if panel.thresholds:
        builder.thresholds_style(GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE))
    return builder


def _target(query: Query, ref: str, *, is_heatmap: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(ref).expr(query.expr).legend_format(query.legend).datasource(DATASOURCE)
    if is_heatmap:
        target.format(PromQueryFormat.HEATMAP)
    return target.exemplar(True) if query.exemplars else target


if __name__ == "__main__":
    sys.stdout.write(build_dashboard())
