package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplainTellsDefaults(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("id", "", "ID of home; empty: part of the UID; keep it")
	flags.String("address", ":80", "address of /metrics; empty: none")
	flags.Duration("hours", 90*time.Minute+30*time.Minute, "how long")
	flags.Duration("minutes", time.Minute, "less than --hours")
	flags.Duration("seconds", 90*time.Second, "how long")
	flags.StringSlice("hosts", nil, "as <name>|<address>; default: any of --hosts")
	for name, want := range map[string][2]string{
		"id":      {"part of the UID", "ID of home; keep it"},
		"address": {"`:80`", "address of `/metrics`; empty: none"},
		"hours":   {"`2h`", "how long"},
		"minutes": {"`1m`", "less than `--hours`"},
		"seconds": {"`1m30s`", "how long"},
		"hosts":   {"any of `--hosts`", `as &lt;name>\|&lt;address>`},
	} {
		value, meaning := explain(flags.Lookup(name))
		assert.Equal(t, want, [2]string{value, meaning}, name)
	}
}

func TestFieldsAreTheRowsOfAnObject(t *testing.T) {
	one, most := int64(1), 20.0
	text := schema{Type: "string", Description: "Name is\nthe claim", MinLength: &one}
	mode := schema{Type: "string", Description: "How.", Enum: []any{"A", "B"}}
	item := schema{Description: "LimitRangeItem defines a min/max usage limit …", Properties: map[string]schema{"max": {}}}
	rows, err := fields("spec", schema{Required: []string{"name"}, Properties: map[string]schema{
		"name":   text,
		"passes": {Type: "integer", Description: "How often.", Maximum: &most, Default: int64(3)},
		"places": {Description: "Places are where.", Items: &schema{Properties: map[string]schema{"mode": mode}}},
		"limits": {Description: "Limits are those.", Items: &item},
	}})
	require.NoError(t, err)
	assert.Equal(t, []field{
		{"spec.limits", "list of LimitRangeItem", "`limits` are those."},
		{"spec.name", "string", "**Required.** `name` is the claim. Not empty."},
		{"spec.passes", "integer", "How often. At most 20; default `3`."},
		{"spec.places", "list of objects", "`places` are where."},
		{"spec.places[].mode", "string", "How. `A` or `B`."},
	}, rows)
	_, err = fields("spec", schema{Properties: map[string]schema{"mute": {Type: "string"}}})
	assert.ErrorContains(t, err, "spec.mute has no comment")
}
