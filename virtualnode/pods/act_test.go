package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestAShadowPodIsSweptOnlyWhenItsHomePodIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		home    []runtime.Object
		deletes int
	}{
		"the home pod is gone":                   {deletes: 1},
		"another home pod has the name":          {home: []runtime.Object{homePodOn("west", "u2")}, deletes: 1},
		"the home pod is there":                  {home: []runtime.Object{homePodOn("west", "u1")}},
		"the home pod is on another node":        {home: []runtime.Object{homePodOn("east", "u1")}},
		"the home pod is not on any node so far": {home: []runtime.Object{homePodOn("", "u1")}},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowOf("s1", "h1", "u1", true)
			remote := &there{shadow: shadow}
			r := newRunner(t, remote, test.home...)
			result := r.sweep(t.Context(), key{uid: "u1", namespace: "shop", name: "db-0"}, shadow)
			require.NoError(t, result.err)
			assert.EqualValues(t, test.deletes, remote.deletes.Load())
			assert.Equal(t, safetyNet, result.after, "it is looked at again")
		})
	}
}
