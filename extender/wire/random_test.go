package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// members are the keys that an object under a key mostly has; an empty list is a
// map of any names.
var members = map[string][]string{
	"args":                  {"Pod", "NodeNames", "Nodes", "NodeNameToVictims", "NodeNameToMetaVictims"},
	"Pod":                   {"metadata", "spec", "status"},
	"Nodes":                 {"metadata", "items"},
	"items":                 {"metadata", "spec"},
	"metadata":              {"name", "namespace", "uid", "annotations", "labels", "ownerReferences"},
	"annotations":           {keys.Near, "other"},
	"labels":                {keys.Cluster, "zone"},
	"ownerReferences":       {"apiVersion", "kind", "name", "controller"},
	"spec":                  {"volumes", "containers"},
	"volumes":               {"name", "persistentVolumeClaim", "ephemeral", "emptyDir"},
	"persistentVolumeClaim": {"claimName", "readOnly"},
	"ephemeral":             {"volumeClaimTemplate"},
	"NodeNameToVictims":     {},
	"NodeNameToMetaVictims": {},
	"victims":               {"Pods", "NumPDBViolations"},
	"Pods":                  {"UID", "metadata"},
}

// lists are the keys whose value mostly is an array.
var lists = map[string]bool{"NodeNames": true, "items": true, "ownerReferences": true, "volumes": true, "Pods": true}

// literals are values that fit a key, and values that fit none.
var (
	literals = map[string][]string{
		"controller":       {"true", "false"},
		"NumPDBViolations": {"0", "1", "-1", "9223372036854775807", "9223372036854775808", "1.0", "1e2"},
		"apiVersion":       {`"apps/v1"`, `"v1"`},
		"kind":             {`"DaemonSet"`, `"StatefulSet"`, `"Pod"`},
	}
	texts = []string{`"a"`, `"b"`, `"web-1"`, `"a,b, c"`, `""`, `"west"`}
	odd   = []string{`null`, `0`, `-0.5e-7`, `true`, `{}`, `[]`, `[null]`, `{"a":1,"a":[2]}`, `"\u0041\n"`, `"é"`, "\"\xff\"", `"\ud83d\ude00 \ud83d"`, `"\q"`, `01`, `nul`, `[1,]`}
)

// author writes requests at random that are mostly as kube-scheduler writes them.
type author struct {
	*rand.Rand
	text strings.Builder
}

func (a *author) oneIn(n int) bool { return a.IntN(n) == 0 }

func (a *author) space() {
	if a.oneIn(60) {
		a.text.WriteString([]string{" ", "\n", "\t \r", "\v"}[a.IntN(4)])
	}
}

func (a *author) value(key string) {
	a.space()
	defer a.space()
	switch {
	case a.oneIn(80):
		a.text.WriteString(odd[a.IntN(len(odd))])
	case lists[key]:
		a.text.WriteByte('[')
		for i := range a.IntN(4) {
			if i > 0 {
				a.text.WriteByte(',')
			}
			a.item(key)
		}
		a.text.WriteByte(']')
	default:
		a.item(key)
	}
}

func (a *author) item(key string) {
	names, isObject := members[key]
	if !isObject {
		choice := texts
		if fitting, ok := literals[key]; ok {
			choice = fitting
		}
		a.text.WriteString(choice[a.IntN(len(choice))])
		return
	}
	a.text.WriteByte('{')
	first := true
	member := func(name, under string) {
		if !first {
			a.text.WriteByte(',')
		}
		first = false
		a.key(name)
		a.text.WriteByte(':')
		a.value(under)
	}
	for _, name := range names {
		if key == "args" && name != "Pod" && a.oneIn(2) {
			continue
		}
		if !a.oneIn(5) {
			member(name, name)
		}
		if a.oneIn(60) {
			member(name, name)
		}
	}
	if len(names) == 0 {
		for _, name := range []string{"b", "a", "c"}[a.IntN(3):] {
			member(name, "victims")
		}
	}
	a.text.WriteByte('}')
}

func (a *author) key(name string) {
	switch a.IntN(150) {
	case 0:
		name = strings.ToUpper(name)
	case 1:
		name = `\u00` + "6d" + name[1:]
	case 2:
		name = strings.NewReplacer("s", "ſ", "k", "\u212a").Replace(name)
	}
	a.text.WriteString(`"` + name + `"`)
}

func TestRandomRequestsAreScannedLikeDecoded(t *testing.T) {
	const count = 20_000
	scanned := 0
	for i := range count {
		a := &author{Rand: rand.New(rand.NewPCG(1, uint64(i)))}
		a.value("args")
		body := []byte(a.text.String())
		filter, preempt := scansLikeDecode(t, body), scansPreemptLikeDecode(t, body)
		if t.Failed() {
			t.Fatalf("request %d: %q", i, body)
		}
		if filter || preempt {
			scanned++
		}
	}
	assert.Greater(t, scanned, count/10, "the comparison must mostly be about requests that are scanned")
}
