package upgrade

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// fleet has pods on virtual nodes west and east that use claim shop/films of an NFS export.
func fleet(changes ...func(*Installation)) Installation {
	node := func(name, cluster string) *corev1.Node {
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if cluster != "" {
			made.Labels = map[string]string{keys.Cluster: cluster}
		}
		return made
	}
	i := Installation{
		Nodes: []*corev1.Node{node("home-1", ""), node("west", "west"), node("east-node", "east")},
		Pods:  []*corev1.Pod{podOn("west", "web-1"), podOn("west", "web-0"), podOn("home-1", "at-home")},
		Claims: []*corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "films", UID: "c1", ResourceVersion: "7"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("nfs"), VolumeName: "export"}}},
		Volumes: []*corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "export"}}},
		Classes: []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs.example.com"}},
	}
	for _, change := range changes {
		change(&i)
	}
	return i
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "films", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "films"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func markedWith(mark string) func(*Installation) {
	return func(i *Installation) { i.Claims[0].Annotations = map[string]string{keys.UsableIn: mark} }
}

func TestClaimsThatNeedAMark(t *testing.T) {
	for name, test := range map[string]struct {
		installation Installation
		// want is the annotation, empty if the claim needs none.
		want string
	}{
		"pods use it in one cluster": {installation: fleet(), want: "west"},
		"pods use it in two": {installation: fleet(func(i *Installation) { i.Pods = append(i.Pods, podOn("east-node", "web-2")) }),
			want: "east,west"},
		"it is marked for one of two": {installation: fleet(markedWith("north , east"),
			func(i *Installation) { i.Pods = append(i.Pods, podOn("east-node", "web-2")) }), want: "east,north,west"},
		"it is marked":  {installation: fleet(markedWith("west"))},
		"it is for all": {installation: fleet(markedWith("*"))},
		"its volume is": {installation: fleet(func(i *Installation) { i.Volumes[0].Annotations = map[string]string{keys.UsableIn: "west"} })},
		"its class is":  {installation: fleet(func(i *Installation) { i.Classes[0].Annotations = map[string]string{keys.UsableIn: "*"} })},
		"its volume has a label of an administrator": {installation: fleet(func(i *Installation) {
			i.Volumes[0].Labels = map[string]string{keys.Cluster: "west"}
		})},
		"it is virtual": {installation: fleet(func(i *Installation) {
			i.Volumes[0].Spec.NodeAffinity = locality.Affinity("west", nil)
		})},
		"its volume could not be read": {installation: fleet(func(i *Installation) { i.Volumes = nil })},
		"its pods only wait there": {installation: fleet(func(i *Installation) {
			i.Pods[0].Status.Phase, i.Pods[1].Status.Phase = "Pending", "Failed"
		})},
		"only pods at home use it":    {installation: fleet(func(i *Installation) { i.Pods = i.Pods[2:] })},
		"there is none of that name":  {installation: fleet(func(i *Installation) { i.Claims[0].Namespace = "other" })},
		"the nodes could not be read": {installation: fleet(func(i *Installation) { i.Nodes = nil })},
	} {
		t.Run(name, func(t *testing.T) {
			found := Markings(test.installation)
			if test.want == "" {
				assert.Empty(t, found)
				assert.Empty(t, Findings(test.installation))
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, test.want, found[0].Value())
			assert.Len(t, Findings(test.installation), 1)
		})
	}
	assert.Equal(t, []string{"claim shop/films: it is not of a class of Lodestone, and pod web-0 uses it in cluster west; after the upgrade " +
		"new pods of it stay at home; if they are to run there as until now, annotate it lodestone.dev/usable-in=west, which `kubectl lodestone " +
		"check-upgrade --mark` does"}, lines(Findings(fleet())))
}

func TestMarkingAsksFirst(t *testing.T) {
	const done = "persistentvolumeclaim/films -n shop marked lodestone.dev/usable-in=west\n"
	for name, test := range map[string]struct {
		typed   string
		yes     bool
		changed bool
		all     []Marking
		want    string
		says    string
		marked  bool
	}{
		"the word is typed":               {typed: "mark\n", marked: true, want: done},
		"nothing is typed":                {says: `nothing was changed, because "mark" was not typed`},
		"another word is":                 {typed: "yes\n", says: `nothing was changed, because "mark" was not typed`},
		"it is not asked":                 {yes: true, marked: true, want: done},
		"the claim was changed meanwhile": {yes: true, changed: true, says: "claim shop/films was changed meanwhile, so it was left as it is"},
		"there is nothing to mark":        {all: []Marking{}, want: "No claim needs a mark.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			i := fleet()
			client := fake.NewClientset(i.Claims[0].DeepCopy())
			if test.changed {
				client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "films", nil)
				})
			}
			if test.all == nil {
				test.all = Markings(i)
			}
			var out, errOut bytes.Buffer
			err := mark(t.Context(), &cli.Cluster{Client: client}, genericiooptions.IOStreams{In: strings.NewReader(test.typed), Out: &out,
				ErrOut: &errOut}, test.yes, test.all)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, test.want, out.String())
			claim, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "films", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, test.marked, claim.Annotations[keys.UsableIn] == "west")
		})
	}
}

func TestAClassThatPackedItsSiblings(t *testing.T) {
	class := func(name, provisioner, rule string) *storagev1.StorageClass {
		made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if rule != "" {
			made.Parameters = map[string]string{keys.Siblings: rule}
		}
		return made
	}
	claim := func(class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}}
	}
	assert.Equal(t, []string{"StorageClass lodestone: it has no parameter lodestone.dev/siblings, so new volumes of a StatefulSet went to " +
		"the cluster that has most of its others; after the upgrade kube-scheduler's own spreading decides; create the class anew with " +
		"lodestone.dev/siblings: pack if they are to stay together"}, lines(Findings(Installation{
		Classes: []*storagev1.StorageClass{class("lodestone", keys.Driver, ""), class("unused", keys.Driver, ""), class("disk", "disk", ""),
			class("spread", keys.Driver, keys.SiblingsSpread)},
		Claims: []*corev1.PersistentVolumeClaim{claim("lodestone"), claim("lodestone"), claim("disk"), claim("spread"), {}},
	})))
}
