"""All charts of the page, as Vega-Lite specs that page.js draws."""
