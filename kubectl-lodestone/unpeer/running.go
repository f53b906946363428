package unpeer

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// lease is what the Lease of a program's leader says.
type lease struct {
	exists   bool
	held     bool
	renewed  time.Time
	duration time.Duration
}

func leaseOf(found *coordinationv1.Lease) lease {
	return lease{
		exists:   true,
		held:     ptr.Deref(found.Spec.HolderIdentity, "") != "",
		renewed:  ptr.Deref(found.Spec.RenewTime, metav1.MicroTime{}).Time,
		duration: time.Duration(ptr.Deref(found.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
}

// lease reads the Lease of a program's leader.
func (u *unpeering) lease(ctx context.Context, name string) (lease, error) {
	found, err := u.home.Client.CoordinationV1().Leases(u.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return lease{}, nil
	}
	if err != nil {
		return lease{}, u.home.Explain("get Lease "+u.Namespace+"/"+name, err)
	}
	return leaseOf(found), nil
}

// runs says whether a program of home runs: its Lease was renewed since it was
// looked at before, or there is none, but there are pods of it. Clocks do not
// matter.
func (u *unpeering) runs(ctx context.Context, name string, before lease) (bool, error) {
	now, err := u.lease(ctx, name)
	if err != nil {
		return false, err
	}
	if now.exists {
		return now.held && !now.renewed.Equal(before.renewed), nil
	}
	deployment, err := u.home.Client.AppsV1().Deployments(u.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, u.home.Explain("get Deployment "+u.Namespace+"/"+name, err)
	}
	return deployment.Status.Replicas > 0, nil
}
