package pitfalls

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever is wrong with the extender: data is not left, pods without data are
// scheduled, and as soon as the extender is well it is heard.
func TestSchedulingGoesOnWhateverTheExtenderDoes(t *testing.T) {
	for name, broken := range map[string]http.HandlerFunc{
		"it is stopped": nil,
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"it answers with an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		},
		"it answers with nonsense": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"NodeNames": "home-1"`))
		},
		"it hangs up": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := address(t)
			mend := func() {}
			if broken != nil {
				mend = impostor(t, at, broken)
			}
			scheduleWith(t, withExtender, at)
			s := newShop(t, open)
			s.dataIn("there", west)
			s.dataIn("here", "home")
			s.pod("remote", "there")
			s.pod("local", "here")
			s.pod("plain")
			assert.Equal(t, westNode, s.awaitNode("remote"))
			assert.True(t, s.atHome("local"))
			s.awaitNode("plain")

			mend()
			runExtender(t, at, "lodestone-extender")
			s.awayFromHome("new")
			s.pod("later", "new")
			assert.Equal(t, westNode, s.awaitSelected("new"))
		})
	}
}

// No extender runs, as when a cluster starts: its own pods do not wait for it.
func TestExtendersOwnPodsAreScheduledWhileThereIsNone(t *testing.T) {
	scheduleWith(t, withExtender, address(t))
	pods := bed.Client().CoreV1().Pods(system)
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=extender"}
	require.NoError(t, pods.DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), ours))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		found, err := pods.List(t.Context(), ours)
		require.NoError(c, err)
		require.Len(c, found.Items, 2)
		for _, pod := range found.Items {
			assert.Nil(c, pod.DeletionTimestamp)
			assert.Contains(c, homeNodes, pod.Spec.NodeName)
		}
	}, long, often)
}

// Neither the extender nor kube-scheduler is started anew.
func TestAllGoesOnAfterARestartOfTheAPIServer(t *testing.T) {
	at := address(t)
	scheduleWith(t, withExtender, at)
	runExtender(t, at, "lodestone-extender")
	before := newShop(t, open)
	before.awayFromHome("before")
	before.pod("before", "before")
	assert.Equal(t, westNode, before.awaitSelected("before"))

	require.NoError(t, bed.StopAPIServer(t.Context()))
	require.NoError(t, bed.StartAPIServer(t.Context()))

	s := newShop(t, open)
	s.dataIn("there", west)
	s.pod("remote", "there")
	s.pod("plain")
	s.awayFromHome("after")
	s.pod("after", "after")
	assert.Equal(t, westNode, s.awaitNode("remote"))
	s.awaitNode("plain")
	assert.Equal(t, westNode, s.awaitSelected("after"))
}
