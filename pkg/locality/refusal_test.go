package locality_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/locality"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func refusedBy(cluster, node string, until time.Time) locality.Refusal {
	return locality.Refusal{Cluster: cluster, Node: node, Reason: "QuotaExceeded", Message: "raise the quota", Until: until}
}

func TestEncodingAndDecodingRefusalsAreInverse(t *testing.T) {
	want := []locality.Refusal{refusedBy("west", "", now), refusedBy("home", "node-1", now.Add(time.Minute))}
	annotation, err := locality.EncodeRefusals(want)
	require.NoError(t, err)
	assert.Equal(t, want, locality.DecodeRefusals(annotation))

	annotation, err = locality.EncodeRefusals(nil)
	require.NoError(t, err)
	assert.Empty(t, annotation, "no refusal needs no annotation")
}

func TestDecodeRefusalsThatUsersMayWrite(t *testing.T) {
	for name, annotation := range map[string]string{
		"nothing":                     "",
		"no JSON":                     "west",
		"another shape":               `{"cluster":"west"}`,
		"a bad time":                  `[{"cluster":"west","until":"tomorrow"}]`,
		"null":                        `null`,
		"text behind":                 `[{"cluster":"west"}] west`,
		"a second list":               `[{"cluster":"west"}] []`,
		"cut short":                   `[{"cluster":"west"}`,
		"more than are ever written":  "[" + strings.Repeat(`{"cluster":"west"},`, 1000) + `{"cluster":"west"}]`,
		"longer than is ever written": `[{"cluster":"west","message":"` + strings.Repeat("a", 200<<10) + `"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, locality.DecodeRefusals(annotation))
		})
	}
}

func TestAddRefusal(t *testing.T) {
	later := now.Add(time.Minute)
	for name, test := range map[string]struct {
		have []locality.Refusal
		add  locality.Refusal
		want []locality.Refusal
	}{
		"the first": {add: refusedBy("west", "", later), want: []locality.Refusal{refusedBy("west", "", later)}},
		"another cluster": {have: []locality.Refusal{refusedBy("east", "", later)}, add: refusedBy("west", "", later),
			want: []locality.Refusal{refusedBy("east", "", later), refusedBy("west", "", later)}},
		"the same cluster again": {have: []locality.Refusal{refusedBy("west", "", later)}, add: refusedBy("west", "", later.Add(time.Second)),
			want: []locality.Refusal{refusedBy("west", "", later.Add(time.Second))}},
		"a node beside its cluster": {have: []locality.Refusal{refusedBy("west", "", later)}, add: refusedBy("west", "node-1", later),
			want: []locality.Refusal{refusedBy("west", "", later), refusedBy("west", "node-1", later)}},
		"an ended one is dropped": {have: []locality.Refusal{refusedBy("east", "", now)}, add: refusedBy("west", "", later),
			want: []locality.Refusal{refusedBy("west", "", later)}},
		"times are whole seconds, and UTC": {add: refusedBy("west", "", later.Add(time.Millisecond).In(time.FixedZone("", 3600))),
			want: []locality.Refusal{refusedBy("west", "", later)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]locality.Refusal{}, test.have...)
			assert.Equal(t, test.want, locality.AddRefusal(test.have, test.add, now))
			assert.Equal(t, before, append([]locality.Refusal{}, test.have...), "the argument is not changed")
		})
	}
}

func TestAddRefusalKeepsTheAnnotationSmall(t *testing.T) {
	var refusals []locality.Refusal
	for i := range 100 {
		r := refusedBy("home", fmt.Sprintf("node-%d", i), now.Add(time.Minute))
		r.Message = strings.Repeat("é", 1000)
		refusals = locality.AddRefusal(refusals, r, now)
	}
	require.Len(t, refusals, 32)
	assert.Equal(t, "node-99", refusals[31].Node, "the oldest go first")
	for _, r := range refusals {
		assert.LessOrEqual(t, len(r.Message), 512)
		assert.True(t, utf8.ValidString(r.Message))
	}
	annotation, err := locality.EncodeRefusals(refusals)
	require.NoError(t, err)
	assert.Less(t, len(annotation), 256<<10/4)
}

func TestRefusalOf(t *testing.T) {
	refusals := []locality.Refusal{refusedBy("west", "", now.Add(time.Second)),
		refusedBy("home", "node-1", now.Add(time.Second)), refusedBy("east", "", now)}
	for name, test := range map[string]struct {
		cluster, node string
		refused       bool
	}{
		"the whole cluster":           {cluster: "west", node: "virtual-west", refused: true},
		"one node of a cluster":       {cluster: "home", node: "node-1", refused: true},
		"another node of the cluster": {cluster: "home", node: "node-2"},
		"the cluster, by one node":    {cluster: "home"},
		"a refusal that has ended":    {cluster: "east", node: "virtual-east"},
		"another cluster":             {cluster: "north", node: "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, refused := locality.RefusalOf(refusals, test.cluster, test.node, now)
			assert.Equal(t, test.refused, refused)
		})
	}
}
