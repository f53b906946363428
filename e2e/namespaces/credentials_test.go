package namespaces

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/credentials"
)

// The tests of this file do not run in parallel: they change how west is reached.

// rotate puts a kubeconfig into the Secret of west.
func rotate(t *testing.T, kubeconfig []byte) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	secret, err := secrets.Get(context.Background(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["kubeconfig"] = kubeconfig
	_, err = secrets.Update(context.Background(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// restore puts good credentials back after a test.
func restore(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		kubeconfig, err := owner.kubeconfig(context.Background())
		require.NoError(t, err)
		rotate(t, kubeconfig)
		require.NoError(t, bed.AwaitReady(context.Background(), "west", metav1.ConditionTrue))
	})
}

func inSecret(t *testing.T) []byte {
	t.Helper()
	secret, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(context.Background(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	return secret.Data["kubeconfig"]
}

func condition(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	remote, err := bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
	require.NoError(t, err)
	if found := meta.FindStatusCondition(remote.Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func awaitCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	await.Until(t, kind+" is "+string(status)+", "+reason, func() bool {
		have := condition(t, kind)
		return have.Status == status && have.Reason == reason
	}, func() any { return condition(t, kind) })
	return condition(t, kind)
}

func TestATokenIsRenewedBeforeItEnds(t *testing.T) {
	testbed.Require(t)
	restore(t)
	ready := condition(t, v1alpha1.Ready)
	require.Equal(t, metav1.ConditionTrue, ready.Status)
	old := aged(t, 9*time.Minute, time.Minute)
	rotate(t, old)
	await.Until(t, "there is another token", func() bool {
		return credentials.Of(inSecret(t)).Until.After(credentials.Of(old).Until)
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	renewed := credentials.Of(inSecret(t))
	assert.False(t, renewed.Due(time.Now()))
	assert.Equal(t, credentials.Of(old).Account, renewed.Account)
	await.Until(t, "the condition says until when", func() bool {
		have := condition(t, v1alpha1.CredentialsValid)
		return have.Reason == credentials.Valid && strings.Contains(have.Message, renewed.Until.Format(time.RFC3339))
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	assert.Equal(t, ready.LastTransitionTime, condition(t, v1alpha1.Ready).LastTransitionTime, "west was Ready all the while")

	namespace := space(t, "shop-", true)
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
}

func TestATokenThatCannotBeRenewedIsToldOfBeforeItEnds(t *testing.T) {
	testbed.Require(t)
	restore(t)
	owner.silence(t)
	bindings := bed.West.Client().RbacV1().RoleBindings(owner.tenant())
	require.NoError(t, bindings.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	rotate(t, aged(t, 9*time.Minute, time.Minute))
	told := awaitCondition(t, v1alpha1.CredentialsValid, metav1.ConditionTrue, credentials.RenewalFailed)
	assert.Contains(t, told.Message, "serviceaccounts")
	assert.Contains(t, told.Message, "kubectl lodestone peer --renew")
	await.Until(t, "there is an event", func() bool {
		list, err := bed.Home.Client().CoreV1().Events(metav1.NamespaceDefault).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.kind=RemoteCluster,involvedObject.name=west,reason=CredentialsRenewalFailed"})
		return err == nil && len(list.Items) > 0
	}, func() any { return "no event" })
	assert.Equal(t, metav1.ConditionTrue, condition(t, v1alpha1.Ready).Status, "it is valid still")
}

func TestATokenThatHasEndedIsToldOf(t *testing.T) {
	testbed.Require(t)
	restore(t)
	rotate(t, aged(t, time.Hour, -time.Minute))
	awaitCondition(t, v1alpha1.CredentialsValid, metav1.ConditionFalse, credentials.Expired)
	ready := awaitCondition(t, v1alpha1.Ready, metav1.ConditionFalse, "NotAuthorized")
	assert.Contains(t, ready.Message, "expired at")
	assert.Contains(t, ready.Message, "kubectl lodestone peer --renew")
	assert.Contains(t, condition(t, v1alpha1.Authorized).Message, "expired at")
}

func TestAProgramThatStartsLateRenewsAtOnce(t *testing.T) {
	testbed.Require(t)
	restore(t)
	require.NoError(t, running.Stop())
	old := aged(t, 9*time.Minute, time.Minute)
	rotate(t, old)
	var err error
	running, err = startProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	await.Until(t, "there is another token", func() bool {
		return credentials.Of(inSecret(t)).Until.After(credentials.Of(old).Until)
	}, func() any { return condition(t, v1alpha1.CredentialsValid) })
	assert.Equal(t, keys.HomeAccount, credentials.Of(inSecret(t)).Account)
}

func TestTheEndOfACertificateIsToldOf(t *testing.T) {
	testbed.Require(t)
	restore(t)
	now := time.Now()
	for _, test := range []struct {
		from, until   time.Duration
		status, ready metav1.ConditionStatus
		reason        string
	}{
		{from: -time.Minute, until: time.Hour, status: metav1.ConditionTrue, reason: credentials.Valid, ready: metav1.ConditionTrue},
		{from: -time.Hour, until: 5 * time.Minute, status: metav1.ConditionTrue, reason: credentials.ExpiresSoon, ready: metav1.ConditionTrue},
		{from: -time.Hour, until: -time.Minute, status: metav1.ConditionFalse, reason: credentials.Expired, ready: metav1.ConditionFalse},
	} {
		until := now.Add(test.until)
		rotate(t, signed(t, now.Add(test.from), until))
		await.Until(t, "the condition tells of this certificate", func() bool {
			have := condition(t, v1alpha1.CredentialsValid)
			return have.Status == test.status && have.Reason == test.reason && strings.Contains(have.Message, until.UTC().Format(time.RFC3339))
		}, func() any { return condition(t, v1alpha1.CredentialsValid) })
		require.NoError(t, bed.AwaitReady(t.Context(), "west", test.ready))
	}
	assert.Contains(t, condition(t, v1alpha1.Ready).Message, "client certificate of the kubeconfig expired")
}
