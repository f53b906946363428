package remote

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
)

// leaseWorld is a home cluster, and a remote one whose agent promises what it is told to.
type leaseWorld struct {
	*epochWorld
	tenant *remotev1alpha1.HomeCluster
	agent  *clients.RemoteClient
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	t.Helper()
	w := &leaseWorld{epochWorld: newEpochWorld(t), tenant: &remotev1alpha1.HomeCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "HomeCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "h1", UID: "tenant"}}}
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(answer).Encode(w.tenant))
	}))
	t.Cleanup(server.Close)
	var err error
	w.agent, err = clients.NewRemoteClient(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	_, err = w.west.CoordinationV1().Leases(keys.TenantPrefix+"h1").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: keys.HeartbeatLease}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return w
}

// begin returns what a provisioner that has just started knows of west.
func (w *leaseWorld) begin() *Cluster {
	c := w.process()
	c.connection.remote, c.sent = w.agent, time.Now()
	c.clusters.clusters = map[string]*Cluster{"west": c}
	return c
}

// renews renews the mark until that acts.
func (w *leaseWorld) renews(c *Cluster) {
	w.Helper()
	require.Eventually(w, func() bool {
		time.Sleep(c.clusters.interval)
		state, _ := c.keepEpoch(w.Context(), w.remote, finding{clusterUID: "west-uid", asking: true})
		return state.acts
	}, time.Minute, time.Millisecond)
}

func (w *leaseWorld) wants(length time.Duration) {
	w.remote.Spec.PodLease = &metav1.Duration{Duration: length}
}

// asked is what is asked for in west.
func (w *leaseWorld) asked() podlease.Ask {
	lease, err := w.west.CoordinationV1().Leases(keys.TenantPrefix+"h1").Get(w.Context(), keys.HeartbeatLease, metav1.GetOptions{})
	require.NoError(w, err)
	return podlease.Parse(lease.Annotations[keys.PodLease])
}

func (w *leaseWorld) promises(ask podlease.Ask) {
	w.tenant.Status.PodLease = &remotev1alpha1.PodLeasePromise{Request: ask.Request, Seconds: ask.Seconds}
}

func (w *leaseWorld) silence(c *Cluster) podlease.Silence {
	w.Helper()
	silence, err := c.clusters.Silence(w.Context(), "west")
	require.NoError(w, err)
	return silence
}

func TestNothingIsReliedOnThatWasNotPromised(t *testing.T) {
	w := newLeaseWorld(t)
	c := w.begin()
	w.renews(c)
	assert.True(t, w.asked().None())
	const unset, unseen = "spec.podLease of RemoteCluster west is not set, so nobody ends pods there while it is silent",
		"the remote agent of cluster west was not seen to promise, before it fell silent, that it ends pods there (condition " +
			"PodLeasePromised of RemoteCluster west)"
	assert.Equal(t, podlease.Silence{Why: unset}, w.silence(c))
	w.wants(2 * time.Minute)
	assert.Equal(t, podlease.Silence{Why: unseen}, w.silence(c), "west was not told")
	w.renews(c)
	assert.Equal(t, podlease.Ask{Request: 1, Seconds: 120}, w.asked())
	assert.Equal(t, unseen, w.silence(c).Why, "it has not answered")
	w.promises(podlease.Ask{Request: 1, Seconds: 120})
	w.renews(c)
	assert.Equal(t, 2*time.Minute, w.silence(c).Length)
	assert.Empty(t, w.silence(c).Why)

	// Another process knows what was promised, and counts anew.
	c.sent = time.Now().Add(-time.Hour)
	assert.GreaterOrEqual(t, w.silence(c).Quiet, time.Hour)
	next := w.begin()
	assert.Equal(t, 2*time.Minute, w.silence(next).Length)
	assert.Less(t, w.silence(next).Quiet, time.Hour)

	// What was promised to another RemoteCluster, or by a west in doubt, is void.
	w.remote.UID = "r2"
	assert.Equal(t, unseen, w.silence(next).Why)
	w.remote.UID = "r1"
	w.store(func(record *homeepoch.Record) {
		record.Doubt = &homeepoch.Doubt{ID: "d", Reason: homeepoch.RemoteBehind}
	})
	assert.Equal(t, unseen, w.silence(next).Why)
	w.store(func(record *homeepoch.Record) { record.Doubt = nil })
	assert.True(t, w.silence(next).IsPromised())

	w.remote.Spec.PodLease = nil
	assert.Equal(t, unset, w.silence(next).Why)
	w.renews(c)
	assert.True(t, w.asked().None())
	w.wants(2 * time.Minute)
	assert.Equal(t, unseen, w.silence(next).Why, "it was taken back, so the promise is void")
	silence, err := c.clusters.Silence(t.Context(), keys.Home)
	require.NoError(t, err)
	assert.False(t, silence.IsPromised())
	silence, err = c.clusters.Silence(t.Context(), "east")
	require.NoError(t, err)
	assert.Equal(t, "there is no RemoteCluster east", silence.Why)
}

// store changes what home has recorded.
func (w *leaseWorld) store(change func(*homeepoch.Record)) {
	w.Helper()
	secrets := w.home.CoreV1().Secrets("system")
	secret, err := secrets.Get(w.Context(), "home-epoch-west", metav1.GetOptions{})
	require.NoError(w, err)
	record := w.recorded()
	change(record)
	secret.Data[homeepoch.SecretKey], err = record.Encode()
	require.NoError(w, err)
	_, err = secrets.Update(w.Context(), secret, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func TestAHeartbeatThatMayHaveArrivedCounts(t *testing.T) {
	w := newLeaseWorld(t)
	w.wants(2 * time.Minute)
	c := w.begin()
	w.renews(c)
	w.promises(w.asked())
	w.renews(c)
	c.sent = time.Now().Add(-time.Hour)
	assert.GreaterOrEqual(t, w.silence(c).Quiet, time.Hour)
	w.west.PrependReactor("update", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the answer is lost")
	})
	_, _ = c.keepEpoch(t.Context(), w.remote, finding{clusterUID: "west-uid", asking: true})
	assert.Less(t, w.silence(c).Quiet, time.Hour)
}

func TestALongerLeaseIsRecordedBeforeItIsAskedFor(t *testing.T) {
	w := newLeaseWorld(t)
	w.wants(time.Minute)
	c := w.begin()
	w.renews(c)
	w.promises(w.asked())
	w.renews(c)
	w.wants(time.Hour)
	w.west.PrependReactor("update", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the answer is lost")
	})
	time.Sleep(c.clusters.interval)
	_, _ = c.keepEpoch(t.Context(), w.remote, finding{clusterUID: "west-uid", asking: true})
	assert.Equal(t, time.Hour, w.silence(w.begin()).Length, "west may hold it already")
}

func TestTheConditionSaysWhetherPodsAreEnded(t *testing.T) {
	w := newLeaseWorld(t)
	c := w.begin()
	status := &v1alpha1.RemoteClusterStatus{}
	shown := func(c *Cluster) metav1.ConditionStatus {
		c.setPodLease(w.remote, status)
		if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.PodLeasePromised); condition != nil {
			return condition.Status
		}
		return ""
	}
	assert.Empty(t, shown(c))
	w.wants(time.Minute)
	assert.Equal(t, metav1.ConditionFalse, shown(c))
	w.renews(c)
	assert.Equal(t, metav1.ConditionFalse, shown(c))
	w.promises(w.asked())
	w.renews(c)
	assert.Equal(t, metav1.ConditionTrue, shown(c))
	assert.Equal(t, metav1.ConditionTrue, shown(w.begin()), "a process that does not reach it leaves what was known")
	w.remote.Spec.PodLease = nil
	assert.Empty(t, shown(c))
}
