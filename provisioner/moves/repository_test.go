package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestASecretOfAnObjectStoreThatCannotBeUsedRefusesTheMove(t *testing.T) {
	secret := func(name, url string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name},
			Data: map[string][]byte{"url": []byte(url), "AWS_ACCESS_KEY_ID": []byte("id")}}
	}
	c := New(Config{Client: fake.NewClientset(secret("good", "s3:https://s3/bucket"), secret("bad", "http://s3/bucket")), Namespace: "system"})
	good, err := c.repositoryOfSecret(t.Context(), "west", "good")
	require.NoError(t, err)
	assert.Equal(t, "s3:https://s3/bucket", good.URL)
	assert.Equal(t, map[string]string{"AWS_ACCESS_KEY_ID": "id"}, good.Credentials)
	for name, want := range map[string]string{"bad": "Secret system/bad, which RemoteCluster west names",
		"none": "there is no Secret system/none"} {
		_, err := c.repositoryOfSecret(t.Context(), "west", name)
		var why refusal
		require.ErrorAs(t, err, &why)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "move again")
	}
}

func TestAClaimThatContentCannotTravelThroughRefusesTheMove(t *testing.T) {
	good := func() *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "moves"},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
	}
	for name, row := range map[string]struct {
		change func(c *corev1.PersistentVolumeClaim)
		want   string
	}{
		"good":             {change: func(*corev1.PersistentVolumeClaim) {}},
		"for one node":     {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteOnce }, "not ReadWriteMany"},
		"to be read alone": {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadOnlyMany }, "not ReadWriteMany"},
		"not bound":        {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, "not bound"},
		"lost":             {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, "not bound"},
		"going":            {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"a device": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
			"block device"},
		"a twin": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{keys.ClaimUID: "u"} },
			"somebody's volume"},
		"one with our finalizer": {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{keys.BackingFinalizer} },
			"somebody's volume"},
		"a target that is not yet": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{keys.MoveOf: "u"} },
			"somebody's volume"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := good()
			row.change(claim)
			wrong := whyUnusableRepository(claim)
			if row.want == "" {
				require.Empty(t, wrong)
				return
			}
			assert.Contains(t, wrong, row.want)
		})
	}

	known := &record.Claim{
		Source: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "storage", Name: "a"}},
		Target: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "other", Name: "a"}},
	}
	c := New(Config{Client: fake.NewClientset(good())})
	_, err := c.repositoryOfClaim(t.Context(), "west", "moves", known)
	var why refusal
	require.ErrorAs(t, err, &why)
	assert.Equal(t, "RemoteCluster west has the content of moves travel through a claim (spec.moveRepository), and claim other/moves in "+
		"cluster home does not exist: create it, or take the field out, and move again", err.Error())
	known.Target.Ref.Namespace = "storage"
	found, err := c.repositoryOfClaim(t.Context(), "west", "moves", known)
	require.NoError(t, err)
	assert.Equal(t, &moverapi.Repository{Claim: "moves"}, found)
}

func TestAMoverSeesOfTheClaimWhatItsNamespaceHasThere(t *testing.T) {
	c := New(Config{Image: "mover:1", Place: backing.Place{HomeID: "home-1"}})
	r := recordIn("PreCopy")
	r.Namespace = "shop"
	r.Claims[0].Store = &record.Store{Cluster: "west", Ticket: (&moverapi.Repository{Claim: "moves"}).For(r.KeysOf(0), "word")}
	assert.Equal(t, "claim moves, the repository of cluster west", r.Claims[0].Store.Describe())
	mount := func(end record.End) corev1.VolumeMount {
		spec := c.moverSpec(r, 0, end, "")
		last := len(spec.Volumes) - 1
		assert.Equal(t, "moves", spec.Volumes[last].PersistentVolumeClaim.ClaimName)
		assert.False(t, spec.Volumes[last].PersistentVolumeClaim.ReadOnly, "the kubelet makes the directory")
		assert.Contains(t, spec.Containers[0].Args, "--repository=/repository")
		return spec.Containers[0].VolumeMounts[last]
	}
	wanted := corev1.VolumeMount{Name: "repository", MountPath: "/repository", SubPath: "lodestone-moves/home-1/shop"}
	assert.Equal(t, wanted, mount(record.Source))
	wanted.ReadOnly = true
	assert.Equal(t, wanted, mount(record.Target), "at the target it only reads")

	r.Claims[0].Store.Ticket = (&moverapi.Repository{URL: "s3:https://s3/bucket"}).For(r.KeysOf(0), "word")
	assert.Len(t, c.moverSpec(r, 0, record.Source, "").Volumes, 3)
	assert.Equal(t, "the object store of cluster west", r.Claims[0].Store.Describe())
}
