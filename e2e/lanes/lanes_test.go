package lanes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/netlab"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// TestPacketsGoOnWhileTheAPIServersOfBothClustersAreAway has both hang, and then both end. Meanwhile programs are killed and start again,
// on a node and on a gateway of each cluster: what they were told last is all that they have.
func TestPacketsGoOnWhileTheAPIServersOfBothClustersAreAway(t *testing.T) {
	for _, row := range []struct {
		name       string
		away, back func(*testbed.Cluster) error
	}{
		{"they hang", (*testbed.Cluster).PauseAPIServer, (*testbed.Cluster).ResumeAPIServer},
		{"they end", func(c *testbed.Cluster) error { return c.StopAPIServer(context.Background()) },
			func(c *testbed.Cluster) error { return c.StartAPIServer(context.Background()) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.name == "they end" {
				testbed.NotInShort(t) // the one before is like it
			}
			c := joined(t)
			web := must.Get(t, bed.West.Client().CoreV1().Pods(c.namespace), "web")
			talk, err := netlab.NewTalk(c.client.Namespace, c.server)
			require.NoError(t, err)
			defer talk.Close()
			c.settled(t)
			before := c.states(t)

			back := map[*testbed.Cluster]bool{bed.Home: true, bed.West: true}
			t.Cleanup(func() {
				for cluster, there := range back {
					if !there {
						_ = row.back(cluster)
					}
				}
			})
			for cluster := range back {
				require.NoError(t, row.away(cluster))
				back[cluster] = false
			}
			time.Sleep(15 * time.Second) // longer than anything here has patience with a silent API server
			require.NoError(t, talk.GoesOn(await.Long))
			for _, n := range []*netlab.Node{c.Home.Nodes[0], c.Home.Nodes[1], c.West.Nodes[0], c.West.Nodes[2]} {
				n.Kill()
				c.start[n.Name]()
			}
			c.settled(t)
			require.NoError(t, talk.GoesOn(await.Long), "also through programs that have heard of no API server")
			assert.Equal(t, before, c.states(t), "no node has anything else, or less")

			since := time.Now()
			for cluster := range back {
				require.NoError(t, row.back(cluster))
				back[cluster] = true
			}
			require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
			await.Until(t, "probes are heard of again", func() bool {
				condition := networkReady(t)
				return condition != nil && condition.Status == metav1.ConditionTrue && heard(t, since)
			}, func() any { return networkReady(t) })
			c.settled(t)
			assert.Equal(t, before, c.states(t), "nothing was torn down")
			require.NoError(t, talk.GoesOn(await.Long))
			_, err = talk.Gap()
			require.NoError(t, err, "the connection of before is still there")

			// Pods go on as well: the one of before is the same, and others come.
			assert.Equal(t, web.UID, must.Get(t, bed.West.Client().CoreV1().Pods(c.namespace), "web").UID)
			bed.AwaitRunning(t, c.namespace, "web")
			bed.CreatePod(t, fabric.InWest(fabric.NewPod(c.namespace, "later")))
			bed.AwaitRunning(t, c.namespace, "later")
			becomes(t, metav1.ConditionTrue, "Probed")
		})
	}
}
