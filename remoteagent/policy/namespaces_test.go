package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestGrant(t *testing.T) {
	policyOf := func(maximum int32, names ...string) *remotev1alpha1.HomeCluster {
		h := home.DeepCopy()
		h.Spec.ClusterUID = "uid-1"
		h.Spec.Namespaces = remotev1alpha1.NamespacePolicy{Maximum: &maximum, Names: names}
		return h
	}
	of := func(id string, names ...string) *remotev1alpha1.HomeCluster {
		h := policyOf(10, names...)
		h.Name = id
		return h
	}
	made := func(change func(*corev1.Namespace)) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{keys.HomeID: "h1"},
			Annotations: map[string]string{keys.MadeFor: "h1/shop", keys.HomeUID: "uid-1"},
		}}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, test := range map[string]struct {
		home     *remotev1alpha1.HomeCluster
		request  string
		existing *corev1.Namespace
		count    int
		status   metav1.Condition
		reason   string
	}{
		"any name, where the owner says so": {home: policyOf(10, "*"), request: "shop"},
		"with no patterns one of its ID":    {home: policyOf(10), request: "shop-h1"},
		"… not one of home's name":          {home: policyOf(10), request: "shop", reason: ReasonNotAllowed},
		"… not one of another ID":           {home: policyOf(10), request: "shop-h2", reason: ReasonNotAllowed},
		"… one that it had and that is made again": {home: policyOf(10), request: "shop",
			status: metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue}},
		"… once it is gone": {home: policyOf(10), request: "shop",
			status: metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionFalse, Reason: ReasonTerminating}},
		"… not one that was refused": {home: policyOf(10), request: "shop", reason: ReasonNotAllowed,
			status: metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionFalse, Reason: ReasonNotAllowed}},
		"… not what it had, where the owner lists others": {home: policyOf(10, "team-*"), request: "shop", reason: ReasonNotAllowed,
			status: metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue}},
		"by a pattern not what is installed in clusters": {home: policyOf(10, "*"), request: "cert-manager", reason: ReasonNotAllowed},
		"… whatever its name":                            {home: policyOf(10, "*"), request: "acme-operator", reason: ReasonNotAllowed},
		"… but if the owner lists it":                    {home: policyOf(10, "*", "cert-manager"), request: "cert-manager"},
		"… and one of its ID":                            {home: policyOf(10, "*"), request: "cert-manager-h1"},
		"an ID that many of these names end by":          {home: of("operator"), request: "acme-operator", reason: ReasonNotAllowed},
		"… which had it already": {home: of("operator"), request: "acme-operator",
			status: metav1.Condition{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue}},
		"… and by a pattern":             {home: of("operator", "*"), request: "acme-operator", reason: ReasonNotAllowed},
		"… but if the owner lists it so": {home: of("operator", "acme-operator"), request: "acme-operator"},
		"a name of a pattern":            {home: policyOf(10, "team-*", "shop"), request: "team-a"},
		"a name of no pattern":           {home: policyOf(10, "team-*"), request: "shop", reason: ReasonNotAllowed},
		"kube-system":                    {home: policyOf(10, "*"), request: "kube-system", reason: ReasonNotAllowed},
		"default":                        {home: policyOf(10), request: "default", reason: ReasonNotAllowed},
		"a namespace of ours":            {home: policyOf(10), request: "lodestone-home-h2", reason: ReasonNotAllowed},
		"not a name":                     {home: policyOf(10), request: "a.b", reason: ReasonNotAllowed},
		"the last one":                   {home: policyOf(3, "*"), request: "shop", count: 2},
		"one too many":                   {home: policyOf(3, "*"), request: "shop", count: 3, reason: ReasonTooMany},
		"none at all":                    {home: policyOf(0, "*"), request: "shop", reason: ReasonTooMany},
		"a namespace that exists": {home: policyOf(10), request: "shop", existing: &corev1.Namespace{},
			reason: ReasonNamespaceExists},
		"its own of earlier":                    {home: policyOf(10), request: "shop", existing: made(nil)},
		"its own of earlier, of no pattern now": {home: policyOf(0, "team-*"), request: "shop", existing: made(nil)},
		"another home's": {home: policyOf(10), request: "shop", existing: made(func(n *corev1.Namespace) {
			n.Labels[keys.HomeID] = "h2"
		}), reason: ReasonNamespaceExists},
		"a forged label": {home: policyOf(10), request: "shop", existing: made(func(n *corev1.Namespace) {
			delete(n.Annotations, keys.MadeFor)
		}), reason: ReasonNamespaceExists},
		"an earlier home's of the same ID": {home: policyOf(10), request: "shop", existing: made(func(n *corev1.Namespace) {
			n.Annotations[keys.HomeUID] = "uid-0"
		}), reason: ReasonNamespaceExists},
		"made for another namespace of this home": {home: policyOf(10), request: "shop", existing: made(func(n *corev1.Namespace) {
			n.Annotations[keys.MadeFor] = "h1/else"
		}), reason: ReasonNamespaceExists},
		"one that is being deleted": {home: policyOf(10), request: "shop", existing: made(func(n *corev1.Namespace) {
			n.DeletionTimestamp = &metav1.Time{}
		}), reason: ReasonTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			request := &remotev1alpha1.NamespaceRequest{ObjectMeta: metav1.ObjectMeta{Name: test.request},
				Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop"}}
			if test.status.Type != "" {
				request.Status.Conditions = []metav1.Condition{test.status}
			}
			refusal := Grant(test.home, request, test.existing, test.count)
			if test.reason == "" {
				assert.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Equal(t, test.reason, refusal.Reason)
			assert.NotEmpty(t, refusal.Message)
		})
	}
}

func TestANamespaceIsForOneHomeNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		recorded string
		now      types.UID
		another  bool
	}{
		"the same":                           {recorded: "u1", now: "u1"},
		"nothing was recorded":               {now: "u2"},
		"a home cluster that names no UID":   {recorded: "u1"},
		"made again, so perhaps for another": {recorded: "u1", now: "u2", another: true},
	} {
		t.Run(name, func(t *testing.T) {
			request := &remotev1alpha1.NamespaceRequest{ObjectMeta: metav1.ObjectMeta{Name: "shop"},
				Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop", HomeNamespaceUID: test.now}}
			refusal := AnotherNamespace(request, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{keys.HomeNamespaceUID: test.recorded}}})
			if !test.another {
				assert.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Equal(t, remotev1alpha1.ReasonAnotherNamespace, refusal.Reason)
			assert.Contains(t, refusal.Message, "kubectl lodestone rebind namespace shop")
		})
	}
}

func TestTheClassesOfANamespace(t *testing.T) {
	existing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.ExistingVolumes: keys.ExistingVolumesAllowed}}}
	for name, test := range map[string]struct {
		listed   []string
		existing *corev1.Namespace
		want     string
	}{
		"those by default":                         {want: "fast,slow"},
		"those that the owner lists":               {listed: []string{"static", "gold"}, want: "gold,static"},
		"any, where volumes that exist are given":  {existing: existing, want: "*"},
		"those that the owner lists even so":       {listed: []string{"gold"}, existing: existing, want: "gold"},
		"those by default of one that is not made": {existing: &corev1.Namespace{}, want: "fast,slow"},
	} {
		t.Run(name, func(t *testing.T) {
			h := home.DeepCopy()
			h.Spec.StorageClasses = test.listed
			annotations := NamespaceAnnotations(h, &remotev1alpha1.NamespaceRequest{}, test.existing, Classes(h, []string{"fast", "slow"}))
			assert.Equal(t, test.want, annotations[keys.StorageClasses])
		})
	}
}

func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"*":      {"a": true, "": true},
		"a":      {"a": true, "ab": false},
		"a*":     {"a": true, "ab": true, "ba": false},
		"*a":     {"a": true, "ba": true, "ab": false},
		"a*b":    {"ab": true, "axb": true, "a": false, "b": false},
		"ab*ba":  {"aba": false, "abba": true},
		"a*b*c":  {"abc": true, "axbxc": true, "acb": false, "ac": false},
		"*x*x":   {"xx": true, "x": false, "axbx": true},
		"a.c":    {"abc": false},
		"a**b":   {"ab": true},
		"team-*": {"team-": true, "team": false},
	} {
		for name, want := range names {
			assert.Equal(t, want, matches(pattern, name), "%q of %q", name, pattern)
		}
	}
}

func TestIdentity(t *testing.T) {
	account, refusal := Identity(home)
	require.Nil(t, refusal)
	assert.Equal(t, "ServiceAccount lodestone-home-h1 lodestone-home", account.Kind+" "+account.Namespace+" "+account.Name)
	for user, ok := range map[string]bool{"lodestone:home:h1": true, "lodestone:home:h2": false, "system:admin": false,
		"lodestone:home:h1/": false} {
		h := home.DeepCopy()
		h.Spec.User = user
		subject, refusal := Identity(h)
		assert.Equal(t, ok, refusal == nil, user)
		if ok {
			assert.Equal(t, "User "+user, subject.Kind+" "+subject.Name)
		}
	}
}

func TestVersionsAreKeptForAsLongAsTheOwnerSays(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 34, 56, 7, time.UTC)
	for name, row := range map[string]struct {
		replicas   *remotev1alpha1.ReplicaPolicy
		age, since string
		again      time.Duration
	}{
		"nothing is said": {},
		"no age is said":  {replicas: &remotev1alpha1.ReplicaPolicy{}},
		"none":            {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{}}},
		"some days, in steps of an hour": {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{Duration: 72 * time.Hour}},
			age: "72h0m0s", since: "2026-03-01T12:00:00Z", again: 25*time.Minute + 4*time.Second - 7},
		"some minutes, in steps of one": {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{Duration: 5 * time.Minute}},
			age: "5m0s", since: "2026-03-04T12:29:00Z", again: 4*time.Second - 7},
	} {
		t.Run(name, func(t *testing.T) {
			home := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{Replicas: row.replicas}}
			annotations, again := VersionsKept(home, now)
			assert.Equal(t, map[string]string{keys.VersionsKeptFor: row.age, keys.VersionsKeptSince: row.since}, annotations)
			assert.Equal(t, row.again, again)
			if again > 0 {
				later, _ := VersionsKept(home, now.Add(again))
				assert.NotEqual(t, annotations, later, "they change then")
			}
		})
	}
}
