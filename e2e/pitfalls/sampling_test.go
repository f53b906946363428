package pitfalls

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// crowd is so many nodes that kube-scheduler looks at only some of them for a pod.
const crowd = 300

// addCrowd adds nodes of the home cluster, until the test ends.
func addCrowd(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	nodes := make([]hollow.Node, crowd)
	for i := range nodes {
		nodes[i] = hollow.Node{Name: fmt.Sprintf("crowd-%d", i), Labels: map[string]string{"crowd": "yes"}}
	}
	t.Cleanup(func() {
		assert.NoError(t, bed.Client().CoreV1().Nodes().DeleteCollection(context.Background(),
			*metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: "crowd=yes"}))
	})
	_, err := hollow.Start(t.Context(), hollow.Options{Config: bed.AdminConfig(), Nodes: nodes, LeasePeriod: 10 * time.Minute})
	require.NoError(t, err)
}

// candidates are the nodes that a stand-in of the extender was asked about for each
// pod.
type candidates struct {
	mu    sync.Mutex
	nodes map[string][]string
}

// ServeHTTP lets every node pass.
func (c *candidates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path != "/filter" {
		_, _ = w.Write([]byte("[]"))
		return
	}
	c.mu.Lock()
	c.nodes[args.Pod.Namespace+"/"+args.Pod.Name] = *args.NodeNames
	c.mu.Unlock()
	_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames})
}

func (c *candidates) of(s *shop, pod string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[s.name+"/"+pod]
}

func TestDataIsFoundAmongMoreNodesThanKubeSchedulerLooksAt(t *testing.T) {
	addCrowd(t)
	at := address(t)
	asked := &candidates{nodes: map[string][]string{}}
	impostor(t, at, asked.ServeHTTP)
	scheduleWith(t, withExtender, at)

	s := newShop(t, open)
	s.dataIn("there", west)
	s.pod("plain")
	s.pod("remote", "there")
	s.awaitNode("plain")
	assert.Equal(t, westNode, s.awaitNode("remote"))
	assert.Less(t, len(asked.of(s, "plain")), crowd, "only some nodes are looked at")
	assert.Equal(t, []string{westNode}, asked.of(s, "remote"), "kube-scheduler itself heeds where data is, on all nodes")

	claim := newClaim("new")
	claim.Spec.StorageClassName = ptr.To(classOf(t, west))
	_, err := bed.Client().CoreV1().PersistentVolumeClaims(s.name).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	s.pod("unbound", "new")
	assert.Equal(t, westNode, s.awaitSelected("new"))
	assert.Equal(t, []string{westNode}, asked.of(s, "unbound"), "and what a class says itself")
}

// classOf makes a virtual class whose volumes belong in one cluster, in words that
// kube-scheduler understands.
func classOf(t *testing.T, cluster string) string {
	t.Helper()
	classes := bed.Client().StorageV1().StorageClasses()
	made, err := classes.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{GenerateName: "only-" + cluster + "-"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: keys.Cluster, Values: []string{cluster}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), made.Name, metav1.DeleteOptions{}) })
	return made.Name
}

func TestExtendersOwnRulesFindTheirNodeWhereAllNodesAreLookedAt(t *testing.T) {
	addCrowd(t)
	at := address(t)
	content, err := os.ReadFile(withExtender)
	require.NoError(t, err)
	scheduler(t, content, settings{extender: at, allNodes: true})
	runExtender(t, at, "lodestone-extender")

	s := newShop(t, open)
	s.awayFromHome("new")
	s.pod("first", "new")
	assert.Equal(t, westNode, s.awaitSelected("new"))
}
