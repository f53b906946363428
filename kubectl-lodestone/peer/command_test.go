package peer

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestFlagsChangeOnlyWhatTheySay(t *testing.T) {
	o := NewOptions()
	o.RemoteContext, o.Offer, o.PodNetwork = "west", map[string]string{"cpu": "2"}, "Routed"
	o.VirtualNode, o.HomeServer = "Disabled", "https://203.0.113.10:6443"
	require.NoError(t, o.Complete())

	home := homeCluster("11111111", homeUID)
	home.Spec.Namespaces = remotev1alpha1.NamespacePolicy{Names: []string{"shop-*"}, Maximum: ptr.To[int32](5), PodSecurity: "restricted"}
	home.Spec.Tolerations = []string{"gpu"}
	remote := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) { r.Spec.StorageClassName = "fast" })
	plan := Plan{Name: "west", HomeID: "11111111", Auth: Token, Strategy: v1alpha1.SameName, Home: &home, Remote: &remote,
		Secret: remote.Spec.KubeconfigSecretRef}

	wanted := plan.homeCluster(*o, homeUID)
	assert.Equal(t, "2", wanted.Spec.Offer.Cpu().String())
	assert.Equal(t, home.Spec.Namespaces, wanted.Spec.Namespaces)
	assert.Equal(t, home.Spec.Tolerations, wanted.Spec.Tolerations)
	rc := plan.remoteCluster(*o, westUID)
	assert.Equal(t, v1alpha1.Routed, rc.Spec.PodNetwork)
	assert.Equal(t, v1alpha1.VirtualNodeDisabled, rc.Spec.VirtualNode)
	assert.Equal(t, "https://203.0.113.10:6443", rc.Spec.HomeServer)
	assert.Equal(t, "fast", rc.Spec.StorageClassName)
	assert.Equal(t, westUID, rc.Annotations[keys.ClusterUID])
	assert.Empty(t, home.Spec.Offer, "what was read is not changed")
}

func TestAnotherWayToLogInChangesHomesUser(t *testing.T) {
	home := homeCluster("11111111", homeUID)
	plan := Plan{HomeID: "11111111", Auth: Certificate, Home: &home}
	assert.Equal(t, "lodestone:home:11111111", plan.homeCluster(*NewOptions(), homeUID).Spec.User)
	home.Spec.User, plan.Auth = "lodestone:home:11111111", Token
	assert.Empty(t, plan.homeCluster(*NewOptions(), homeUID).Spec.User)
}

func TestManifestHasNothingThatNobodyWrites(t *testing.T) {
	remote := remoteCluster("west", westUID, func(r *v1alpha1.RemoteCluster) {
		r.UID, r.ResourceVersion, r.Finalizers = "uid", "7", []string{keys.VolumesFinalizer}
		r.Status.Volumes = 3
	})
	plan := Plan{Name: "west", Strategy: v1alpha1.Suffixed, Remote: &remote, Secret: remote.Spec.KubeconfigSecretRef}
	object, err := manifest(plan.remoteCluster(*NewOptions(), westUID))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"apiVersion": "lodestone.dev/v1alpha1", "kind": "RemoteCluster",
		"metadata": map[string]any{"name": "west", "annotations": map[string]string{keys.ClusterUID: westUID}},
		"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"namespace": "lodestone-system", "name": "west", "key": "kubeconfig"},
			"namespaces":          map[string]any{"strategy": "Suffixed"},
		},
	}, object)
}

func TestTheSecretKeepsWhatElseIsInIt(t *testing.T) {
	have := &corev1.Secret{Data: map[string][]byte{"notes": []byte("ours")}}
	plan := Plan{Secret: v1alpha1.SecretKeyRef{Namespace: "lodestone-system", Name: "west"}}
	want := plan.secret(have, westUID, func(data map[string][]byte) { data[plan.key()] = []byte("new") })
	assert.Equal(t, map[string][]byte{"notes": []byte("ours"), "kubeconfig": []byte("new")}, want.Data)
	assert.NotContains(t, have.Data, "kubeconfig", "what was read is not changed")
}

func TestRangesThatCannotBeThoseOfPodsAreRefused(t *testing.T) {
	for texts, says := range map[string]string{
		"127.0.0.0/8":                     "none has an address of 127.0.0.0/8",
		"10.1.0.0/16,169.254.0.0/16":      "none has an address of 169.254.0.0/16",
		"0.0.0.0/0":                       "give one of /8 or smaller",
		"10.1.0.0/16,10.1.3.0/24":         "10.1.3.0/24 overlaps with 10.1.0.0/16",
		"10.1.0.0/16,fd00::/48,ff00::/16": "none has an address of ff00::/8",
	} {
		for _, flag := range []string{"--pod-cidrs", "--home-pod-cidrs"} {
			o := NewOptions()
			o.RemoteContext, o.PodNetwork = "west", "Fabric"
			if o.PodCIDRs = strings.Split(texts, ","); flag == "--home-pod-cidrs" {
				o.PodCIDRs, o.HomePodCIDRs = nil, o.PodCIDRs
			}
			err := o.Complete()
			require.ErrorContains(t, err, flag+": ")
			require.ErrorContains(t, err, says)
			assert.Equal(t, cli.Usage, cli.ExitCodeOf(err))
		}
	}
}

func TestALifeOfCredentialsThatTheAPICannotSayIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		duration time.Duration
		says     string
	}{
		"a minute":             {duration: time.Minute, says: "too short"},
		"10 minutes":           {duration: 10 * time.Minute},
		"10 years":             {duration: maxLoginDuration},
		"more":                 {duration: maxLoginDuration + time.Second, says: "too long"},
		"more than 32 bits":    {duration: (math.MaxInt32 + 1) * time.Second, says: "too long"},
		"as long as can be":    {duration: math.MaxInt64, says: "too long"},
		"less than no time":    {duration: -time.Hour, says: "too short"},
		"overflow to 12 hours": {duration: (1<<32 + 43200) * time.Second, says: "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.RemoteContext, o.Duration = "west", test.duration
			err := o.Complete()
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				assert.Equal(t, cli.Usage, cli.ExitCodeOf(err))
				return
			}
			require.NoError(t, err)
			request, err := signingRequest(Plan{Auth: Certificate}, newKey(t), *o)
			require.NoError(t, err)
			assert.Equal(t, test.duration, time.Duration(*request.Spec.ExpirationSeconds)*time.Second)
		})
	}
}

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := credentials.NewKey()
	require.NoError(t, err)
	return key
}
