package refusal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func of(cluster, node string, until time.Time) refusal.Refusal {
	return refusal.Refusal{Cluster: cluster, Node: node, Reason: "QuotaExceeded", Message: "raise the quota", Until: until}
}

func TestEncodeAndDecodeAreInverse(t *testing.T) {
	want := []refusal.Refusal{of("west", "", now), of("home", "node-1", now.Add(time.Minute))}
	annotation, err := refusal.Encode(want)
	require.NoError(t, err)
	assert.Equal(t, want, refusal.Decode(annotation))

	annotation, err = refusal.Encode(nil)
	require.NoError(t, err)
	assert.Empty(t, annotation, "no refusal needs no annotation")
}

func TestDecodeWhatUsersMayWrite(t *testing.T) {
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
			assert.Empty(t, refusal.Decode(annotation))
		})
	}
}

func TestAdd(t *testing.T) {
	later := now.Add(time.Minute)
	for name, test := range map[string]struct {
		have []refusal.Refusal
		add  refusal.Refusal
		want []refusal.Refusal
	}{
		"the first": {add: of("west", "", later), want: []refusal.Refusal{of("west", "", later)}},
		"another cluster": {have: []refusal.Refusal{of("east", "", later)}, add: of("west", "", later),
			want: []refusal.Refusal{of("east", "", later), of("west", "", later)}},
		"the same cluster again": {have: []refusal.Refusal{of("west", "", later)}, add: of("west", "", later.Add(time.Second)),
			want: []refusal.Refusal{of("west", "", later.Add(time.Second))}},
		"a node beside its cluster": {have: []refusal.Refusal{of("west", "", later)}, add: of("west", "node-1", later),
			want: []refusal.Refusal{of("west", "", later), of("west", "node-1", later)}},
		"an ended one is dropped": {have: []refusal.Refusal{of("east", "", now)}, add: of("west", "", later),
			want: []refusal.Refusal{of("west", "", later)}},
		"times are whole seconds, and UTC": {add: of("west", "", later.Add(time.Millisecond).In(time.FixedZone("", 3600))),
			want: []refusal.Refusal{of("west", "", later)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]refusal.Refusal{}, test.have...)
			assert.Equal(t, test.want, refusal.Add(test.have, test.add, now))
			assert.Equal(t, before, append([]refusal.Refusal{}, test.have...), "the argument is not changed")
		})
	}
}

func TestAddKeepsTheAnnotationSmall(t *testing.T) {
	var refusals []refusal.Refusal
	for i := range 100 {
		r := of("home", fmt.Sprintf("node-%d", i), now.Add(time.Minute))
		r.Message = strings.Repeat("é", 1000)
		refusals = refusal.Add(refusals, r, now)
	}
	require.Len(t, refusals, 32)
	assert.Equal(t, "node-99", refusals[31].Node, "the oldest go first")
	for _, r := range refusals {
		assert.LessOrEqual(t, len(r.Message), 512)
		assert.True(t, utf8.ValidString(r.Message))
	}
	annotation, err := refusal.Encode(refusals)
	require.NoError(t, err)
	assert.Less(t, len(annotation), 256<<10/4)
}

func TestOf(t *testing.T) {
	refusals := []refusal.Refusal{of("west", "", now.Add(time.Second)), of("home", "node-1", now.Add(time.Second)), of("east", "", now)}
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
			_, refused := refusal.Of(refusals, test.cluster, test.node, now)
			assert.Equal(t, test.refused, refused)
		})
	}
}
