package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSiblings(t *testing.T) {
	add := func(view *Snapshot, claim, cluster string) {
		view.Claims.Set("app/"+claim, &Claim{UID: claim, VolumeName: "pv-" + claim})
		view.Volumes.Set("pv-"+claim, &Volume{Cluster: cluster, ClaimUID: claim})
	}
	view := New()
	for i := range 200 {
		add(view, fmt.Sprintf("data-db-%d", i), fmt.Sprint(i))
	}
	add(view, "data-db-07", "odd")
	add(view, "data-db--1", "odd")
	add(view, "log-db-1", "log")
	add(view, "data-db-1-0", "other set")
	view.Claims.Set("app/soft-db-1", &Claim{UID: "soft", VolumeName: "pv-soft"})
	view.Volumes.Set("pv-soft", &Volume{Prefers: "soft", ClaimUID: "soft"})
	view.Claims.Set("app/soft-db-2", &Claim{UID: "thief", VolumeName: "pv-soft"})
	view.Claims.Set("app/soft-db-3", &Claim{UID: "new"})
	view.Claims.Set("app/new-db-1", &Claim{UID: "new-1", SelectedNode: "node"})
	view.Claims.Set("app/new-db-2", &Claim{UID: "new-2", SelectedNode: "gone"})
	view.Claims.Set("app/new-db-3", &Claim{UID: "new-3"})
	view.Nodes.Set("node", "west")

	numbers := func(from, to, but int) []string {
		var all []string
		for i := from; i <= to; i++ {
			if i != but {
				all = append(all, fmt.Sprint(i))
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		pod, set, claim string
		want            []string
	}{
		"64 above the first pod":                    {pod: "db-0", set: "db", claim: "data-db-0", want: numbers(1, 64, -1)},
		"64 on either side":                         {pod: "db-100", set: "db", claim: "data-db-100", want: numbers(36, 164, 100)},
		"those that are left above":                 {pod: "db-198", set: "db", claim: "data-db-198", want: numbers(134, 199, 198)},
		"another template":                          {pod: "db-0", set: "db", claim: "log-db-0", want: []string{"log"}},
		"a volume with a label, of which one tells": {pod: "db-0", set: "db", claim: "soft-db-0", want: []string{"soft"}},
		"volumes that are being made":               {pod: "db-0", set: "db", claim: "new-db-0", want: []string{"west"}},
		"a set whose name ends like an ordinal":     {pod: "db-1-1", set: "db-1", claim: "data-db-1-1", want: []string{"other set"}},
		"a pod of no set":                           {pod: "db-0", claim: "data-db-0"},
		"a pod of another set":                      {pod: "db-0", set: "web", claim: "data-db-0"},
		"a pod whose ordinal is none":               {pod: "db-x", set: "db", claim: "data-db-x"},
		"a pod whose ordinal has a zero before":     {pod: "db-07", set: "db", claim: "data-db-07"},
		"a pod whose ordinal is negative":           {pod: "db--1", set: "db", claim: "data-db--1"},
		"a pod whose ordinal is too large":          {pod: "db-99999999999999999999", set: "db", claim: "data-db-99999999999999999999"},
		"the largest ordinal":                       {pod: "db-2147483647", set: "db", claim: "data-db-2147483647"},
		"a claim that is not by a template":         {pod: "db-0", set: "db", claim: "shared"},
		"a claim of another pod":                    {pod: "db-0", set: "db", claim: "data-db-1"},
		"a claim without a template":                {pod: "db-0", set: "db", claim: "-db-0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Collect(view.Siblings(Pod{Namespace: "app", Name: test.pod, StatefulSet: test.set}, PodClaim{Name: test.claim}))
			assert.Equal(t, test.want, got)
		})
	}
	for cluster := range view.Siblings(Pod{Namespace: "app", Name: "db-0", StatefulSet: "db"}, PodClaim{Name: "data-db-0"}) {
		assert.Equal(t, "1", cluster)
		break
	}
	assert.Empty(t, slices.Collect(view.Siblings(Pod{Namespace: "other", Name: "db-0", StatefulSet: "db"}, PodClaim{Name: "data-db-0"})), "of another namespace")
}
