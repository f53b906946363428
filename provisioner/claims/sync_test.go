package claims

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

func TestAnswersToARequestForAnotherSize(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fixed")},
	}
	forbidden := func(text string) error { return apierrors.NewForbidden(claimsResource, "data", errors.New(text)) }
	for name, test := range map[string]struct {
		err    error
		reason string // empty: tried again
		says   string
	}{
		"the class does not allow it": {
			err:    forbidden("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"),
			reason: "ExpansionNotAllowed",
			says:   `real storage class "fixed" in cluster west does not allow expansion: let its administrator set allowVolumeExpansion there`},
		"the quota leaves no room": {err: forbidden("exceeded quota: storage, requested: 2Gi"), reason: "QuotaExceeded",
			says: "leaves no room for 3Gi"},
		"there are no rights": {err: forbidden(`User "home" cannot patch resource "persistentvolumeclaims"`), reason: "NotAllowed",
			says: "bind the rights"},
		"a policy says no":  {err: forbidden("policy says no"), reason: "NotAllowed", says: "policy says no"},
		"it is not valid":   {err: apierrors.NewInvalid(kind, "data", nil), reason: "NotValid", says: "does not accept 3Gi"},
		"a conflict":        {err: apierrors.NewConflict(claimsResource, "data", errors.New("changed"))},
		"it is gone":        {err: apierrors.NewNotFound(claimsResource, "data")},
		"too many requests": {err: apierrors.NewTooManyRequests("later", 1)},
		"a server error":    {err: apierrors.NewInternalError(errors.New("etcd"))},
		"a time-out":        {err: sent(errors.New("deadline exceeded"))},
	} {
		t.Run(name, func(t *testing.T) {
			declined := sortExpandError(test.err, "west", claim, resource.MustParse("3Gi"))
			if test.reason == "" {
				assert.Nil(t, declined)
				return
			}
			require.NotNil(t, declined)
			assert.Equal(t, test.reason, declined.Reason)
			assert.Contains(t, declined.Message, test.says)
			assert.Equal(t, "3Gi", declined.Size.String())
		})
	}
}

func TestARefusedSizeIsAskedForEverMoreSeldom(t *testing.T) {
	m, now := newMemory(), time.Now()
	assert.Nil(t, m.of("u1").sizeRefused(now))
	var pauses []time.Duration
	for range 6 {
		m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("3Gi"), Reason: "QuotaExceeded"}, now)
		kept := m.of("u1").sizeRefused(now)
		require.NotNil(t, kept)
		pauses = append(pauses, kept.Until.Sub(now))
		now = kept.Until
		assert.Nil(t, m.of("u1").sizeRefused(now), "it is time to ask again")
	}
	const m1 = time.Minute
	assert.Equal(t, []time.Duration{m1, 2 * m1, 4 * m1, 8 * m1, 10 * m1, 10 * m1}, pauses)

	m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("2Gi")}, now)
	assert.Equal(t, m1, m.of("u1").sizeRefused(now).Until.Sub(now), "another size begins anew")
	m.setRefusedSize("u1", nil, now)
	assert.Nil(t, m.of("u1").sizeRefused(now))
	m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("2Gi")}, now)
	m.forget("u1")
	assert.Nil(t, m.of("u1").sizeRefused(now))
}

func TestOnlyTheSizeIsWritten(t *testing.T) {
	on := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u1", ResourceVersion: "7"}}
	patch, err := statusPatch(on, &corev1.PersistentVolumeClaimStatus{
		Phase:    corev1.ClaimLost,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi"), "other": resource.MustParse("1")},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"uid":"u1","resourceVersion":"7"},"status":{"conditions":null,
		"capacity":{"storage":"3Gi"},"allocatedResources":{"storage":null},"allocatedResourceStatuses":{"storage":null}}}`, string(patch))
}

func asking(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &name},
	}
}

func TestAttributesThatAClusterCannotGiveAreRefused(t *testing.T) {
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "disk.csi.dev"}
	fails := func(err error) *fake.Clientset {
		client := fake.NewClientset()
		client.PrependReactor("get", "volumeattributesclasses",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		return client
	}
	for name, test := range map[string]struct {
		client       *fake.Clientset
		asks, driver string
		says         string
		again        bool
	}{
		"none asked for":             {client: fails(errors.New("asked for nothing"))},
		"a class that is there":      {client: fake.NewClientset(gold), asks: "gold", driver: "disk.csi.dev"},
		"a driver that is not known": {client: fake.NewClientset(gold), asks: "gold"},
		"a class that is not there": {client: fake.NewClientset(gold), asks: "silver",
			says: `cluster west has no VolumeAttributesClass "silver"`},
		"a class of another driver": {client: fake.NewClientset(gold), asks: "gold", driver: "other.csi.dev",
			says: `is for driver "disk.csi.dev"`},
		"a cluster that does not let one look": {client: fails(apierrors.NewForbidden(schema.GroupResource{}, "gold", errors.New("no"))),
			asks: "gold", says: "apply Lodestone's manifests there anew"},
		"a cluster that does not answer so far": {client: fails(errors.New("connection refused")), asks: "gold", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			refused, err := (&Controller{}).checkAttributes(t.Context(), test.client, "west", asking(test.asks), test.driver)
			require.Equal(t, test.again, err != nil)
			if test.says == "" {
				assert.Nil(t, refused)
				return
			}
			require.NotNil(t, refused)
			assert.Equal(t, "NoAttributesClass", refused.Reason)
			assert.Equal(t, "west", refused.Cluster)
			assert.Contains(t, refused.Message, test.says)
		})
	}
}

func TestRefusedAttributesAreKeptForAWhile(t *testing.T) {
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "disk.csi.dev"}
	b, _ := carried()
	now := time.Now()
	o := steps.Observation{UID: "u1", Now: now, Claim: asking("gold")}
	for name, test := range map[string]struct {
		objects []runtime.Object
		fails   error
		reason  string
	}{
		"the class is missing": {objects: []runtime.Object{b}, reason: "NoAttributesClass"},
		"the change is refused": {objects: []runtime.Object{b, gold}, fails: apierrors.NewForbidden(claimsResource, "data", errors.New("no")),
			reason: "AttributesRefused"},
		"the change is not valid": {objects: []runtime.Object{b, gold}, fails: apierrors.NewInvalid(kind, "data", nil),
			reason: "AttributesRefused"},
		"the change is made": {objects: []runtime.Object{b, gold}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			if test.fails != nil {
				client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.fails
				})
			}
			f := New(Config{Client: client})
			f.memory.setRefusedAttributes("u1", &steps.RefusedAttributes{Attributes: "older", Until: now.Add(time.Hour)})
			result := f.modifyBacking(t.Context(), o, steps.ModifyBacking{Backing: steps.Backing{Cluster: keys.Home, Claim: b}})
			require.NoError(t, result.err)
			kept := f.memory.of("u1").attributesRefused(now)
			assert.Equal(t, test.reason != "", result.again)
			if test.reason == "" {
				assert.Nil(t, kept)
				return
			}
			require.NotNil(t, kept)
			assert.Equal(t, test.reason, kept.Reason)
			assert.Equal(t, "gold", kept.Attributes)
			assert.Nil(t, f.memory.of("u1").attributesRefused(now.Add(attributesAgain)), "then it is tried again")
		})
	}
}

func TestACopyIsNotMadeInAnotherNamespaceThanItsSource(t *testing.T) {
	step := steps.CreateBacking{Route: route.Route{Cluster: "west", Source: types.NamespacedName{Namespace: "shop", Name: "source"}}}
	o := steps.Observation{Claim: asking("")}
	refused, err := (&Controller{}).refusedBeforeCreate(t.Context(), fake.NewClientset(), o, step,
		types.NamespacedName{Namespace: "shop", Name: "data"})
	require.NoError(t, err)
	assert.Nil(t, refused)
	refused, err = (&Controller{}).refusedBeforeCreate(t.Context(), fake.NewClientset(), o, step,
		types.NamespacedName{Namespace: "shop-h1", Name: "data"})
	require.NoError(t, err)
	require.NotNil(t, refused)
	assert.Equal(t, "SourceInOtherNamespace", refused.Reason)
}

// Volume and claim are two writes: the step is repeated until both are done, whatever
// happens in between.
func TestAttributesAreToldAgainUntilBothWritesAreDone(t *testing.T) {
	claim := asking("gold")
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}}
	shadow := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: ptr.To("gold")}}
	client := fake.NewClientset(claim, volume)
	client.PrependReactor("patch", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, "status", action.GetSubresource())
		return true, nil, errors.New("the leader was stopped")
	})
	f := New(Config{Client: client})
	look := func() (steps.Observation, steps.UpdateVolume) {
		live, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-u1", metav1.GetOptions{})
		require.NoError(t, err)
		now, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		return steps.Observation{Claim: now, Volume: live}, steps.UpdateVolume{Backing: steps.Backing{Cluster: "west", Claim: shadow}}
	}
	o, step := look()
	require.Error(t, f.updateVolume(t.Context(), o, step))
	o, step = look()
	assert.Equal(t, "gold", ptr.Deref(o.Volume.Spec.VolumeAttributesClassName, ""))
	require.True(t, decide.AttributesApplied(o, step.Backing), "the claim does not tell yet")

	client.ReactionChain = client.ReactionChain[1:]
	require.NoError(t, f.updateVolume(t.Context(), o, step))
	o, step = look()
	assert.False(t, decide.AttributesApplied(o, step.Backing))
}

func TestOnlyTheBackingClaimThatWasSeenIsBroughtInStep(t *testing.T) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1",
		Labels: map[string]string{keys.ClaimUID: "u1", "old": "x"}, Annotations: map[string]string{keys.Claim: "shop/data"}}}
	client := fake.NewClientset(b)
	f := New(Config{Client: client})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := steps.SyncMetadata{Backing: steps.Backing{Cluster: keys.Home, Claim: b},
		Labels: map[string]any{"team": "a", "old": nil}, Annotations: map[string]any{keys.Carried: "{}"}}
	require.NoError(t, f.syncMetadata(context.Background(), steps.Observation{UID: "u1", Now: at}, step))
	have, err := client.CoreV1().PersistentVolumeClaims("lodestone-storage").Get(t.Context(), "pvc-u1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{keys.ClaimUID: "u1", "team": "a"}, have.Labels)
	assert.Equal(t, map[string]string{keys.Claim: "shop/data", keys.Carried: "{}"}, have.Annotations)
	assert.Equal(t, at, f.memory.of("u1").syncedAt())
	patch, ok := client.Actions()[0].(clienttesting.PatchAction)
	require.True(t, ok)
	assert.Contains(t, string(patch.GetPatch()), `"uid":"b1"`, "a later claim of that name is another")

	// Of what a step does not name all stays.
	step.Labels, step.Annotations = nil, map[string]any{keys.Generation: "2"}
	require.NoError(t, f.syncMetadata(context.Background(), steps.Observation{UID: "u1", Now: at}, step))
	have, err = client.CoreV1().PersistentVolumeClaims("lodestone-storage").Get(t.Context(), "pvc-u1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{keys.ClaimUID: "u1", "team": "a"}, have.Labels)
}

func carried() (*corev1.PersistentVolumeClaim, steps.SyncMetadata) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1"}}
	return b, steps.SyncMetadata{Backing: steps.Backing{Cluster: keys.Home, Claim: b}, Labels: map[string]any{"team": "a"}}
}

func TestACarryThatFailsIsNoPauseThatHidesIt(t *testing.T) {
	b, step := carried()
	client := fake.NewClientset(b)
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("a policy says no")
	})
	f := New(Config{Client: client})
	require.Error(t, f.syncMetadata(t.Context(), steps.Observation{UID: "u1", Now: time.Now()}, step))
	assert.Zero(t, f.memory.of("u1").syncedAt())
}

func TestAChangeThatNobodyAsksForAnyMoreIsTakenBack(t *testing.T) {
	b, step := carried()
	old := "gold"
	b.Spec.VolumeAttributesClassName = &old
	client := fake.NewClientset(b)
	f := New(Config{Client: client})
	require.NoError(t, f.modifyBacking(t.Context(), steps.Observation{UID: "u1", Now: time.Now(), Claim: asking("")},
		steps.ModifyBacking{Backing: step.Backing}).err)
	have, err := client.CoreV1().PersistentVolumeClaims(b.Namespace).Get(t.Context(), b.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, have.Spec.VolumeAttributesClassName)
}

// idlePublisher is a Publisher with nothing to do.
type idlePublisher struct{ Publisher }

func (idlePublisher) HandedOut(types.UID) bool { return false }

func (idlePublisher) Forget(types.UID) {}

func (idlePublisher) Withdraw(types.UID) bool { return true }

// expansion is a claim of 1 GiB that requests 3 GiB, of an NFS volume at home.
type expansion struct {
	client *fake.Clientset
	writes int
	failAt int
	// lost: the failing write takes effect.
	lost bool
}

func newExpansion(t *testing.T, failAt int, lost bool) *expansion {
	t.Helper()
	sized := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	claim := func(namespace, name string, uid types.UID, volume, request string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: sized(request)}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: sized("1Gi")},
		}
	}
	volume := func(name string, uid types.UID, of *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: sized("1Gi"), ClaimRef: &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name, UID: of.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
	}
	virtual := claim("shop", "data", "u1", "pvc-u1", "3Gi")
	twin := claim("storage", "pvc-u1", "b1", "real", "1Gi")
	twin.Labels = map[string]string{keys.ClaimUID: "u1", keys.HomeID: "home-1"}
	above := volume("pvc-u1", "v1", virtual)
	above.Annotations = map[string]string{keys.Backing: backing.RefTo(keys.Home, twin).String(), keys.BackingVolume: "real"}
	e := &expansion{client: fake.NewClientset(virtual, twin, above, volume("real", "v2", twin)), failAt: failAt, lost: lost}
	e.client.PrependReactor("patch", "*", e.react)
	return e
}

var errInjected = errors.New("the connection is lost")

// react makes one write fail.
func (e *expansion) react(action clienttesting.Action) (bool, runtime.Object, error) {
	e.writes++
	if e.writes-1 != e.failAt {
		return false, nil, nil
	}
	if e.lost {
		if _, _, err := clienttesting.ObjectReaction(e.client.Tracker())(action); err != nil {
			return true, nil, err
		}
	}
	return true, nil, errInjected
}

// step takes one step of a freshly started provisioner.
func (e *expansion) step(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	sources, err := home.NewSources(informers.NewSharedInformerFactory(e.client, 0))
	require.NoError(t, err)
	claims, err := e.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range claims.Items {
		require.NoError(t, sources.Claims.GetStore().Add(&claims.Items[i]))
	}
	volumes, err := e.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for i := range volumes.Items {
		require.NoError(t, sources.Volumes.GetStore().Add(&volumes.Items[i]))
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	f := New(Config{
		Client: e.client, Sources: sources, Clusters: remote.New(remote.Config{Objects: cache.NewSharedIndexInformer(nil, nil, 0, nil)}),
		Publisher: idlePublisher{},
		Place:     backing.Place{HomeID: "home-1", StorageNamespace: "storage"}, Recorder: record.NewFakeRecorder(100), Metrics: metrics,
	})
	o := f.observe("u1", false)
	next := decide.Next(o)
	if result := f.perform(context.WithoutCancel(ctx), o, next); result.err != nil {
		require.ErrorIs(t, result.err, errInjected)
	}
	return next.Verb()
}

// grow acts as the program that expands the real volume, once requested.
func (e *expansion) grow(t *testing.T) {
	t.Helper()
	twin := e.claim(t, "storage", "pvc-u1")
	if want := twin.Spec.Resources.Requests[corev1.ResourceStorage]; want.Cmp(*twin.Status.Capacity.Storage()) > 0 {
		real := e.volume(t, "real")
		real.Spec.Capacity[corev1.ResourceStorage], twin.Status.Capacity[corev1.ResourceStorage] = want, want
		require.NoError(t, e.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), real, ""))
		require.NoError(t, e.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), twin, twin.Namespace))
	}
}

func (e *expansion) claim(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := e.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return claim
}

func (e *expansion) volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	volume, err := e.client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return volume
}

// TestExpansionSurvivesARestartAtEachOfItsWrites starts a new provisioner for each step and
// makes each write fail in turn, with and without effect.
func TestExpansionSurvivesARestartAtEachOfItsWrites(t *testing.T) {
	const writes = 3
	for failAt := range writes + 1 {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, carried out %t", failAt, lost), func(t *testing.T) {
				e := newExpansion(t, failAt, lost)
				idle := 0
				for steps := 0; idle < 2; steps++ {
					require.Less(t, steps, 3*writes, "it does not come to rest")
					if e.step(t) == "Idle" {
						idle++
					}
					e.grow(t)
				}
				virtual := e.claim(t, "shop", "data")
				assert.Equal(t, "3Gi", e.claim(t, "storage", "pvc-u1").Spec.Resources.Requests.Storage().String())
				assert.Equal(t, "3Gi", e.volume(t, "pvc-u1").Spec.Capacity.Storage().String())
				assert.Equal(t, "3Gi", virtual.Status.Capacity.Storage().String())
				assert.Equal(t, corev1.ClaimBound, virtual.Status.Phase)
				want := writes
				if failAt < writes && !lost {
					want++
				}
				assert.Equal(t, want, e.writes, "no write is made in vain")
			})
		}
	}
}
