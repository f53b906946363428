package move

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
)

// Adopt has a claim get a real claim that has newer data of it, and waits until it has it. The VolumeMove says how that went, for a
// day.
func Adopt(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, claim types.NamespacedName, has backing.Ref) error {
	o := newOptions()
	o.Cluster = has.Cluster
	r := &runner{Options: o, home: home, streams: streams, namespace: claim.Namespace}
	wanted, err := o.object(claim.Namespace, claim.Name)
	if err != nil {
		return err
	}
	wanted.Spec.Adopt = string(has.UID)
	made, err := r.create(ctx, wanted)
	if err != nil {
		return err
	}
	return r.finish(ctx, made)
}
