package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
)

// Accepted asks a cluster whether it takes a login for that of user. It goes by
// the way that the caller reaches the cluster, which may not be home's.
func Accepted(ctx context.Context, cluster *access.Cluster, login Login, user string) (bool, error) {
	if login.Token == "" && len(login.Certificate) == 0 {
		return false, nil
	}
	config := rest.AnonymousClientConfig(cluster.Config)
	config.Timeout, config.UserAgent = cluster.Config.Timeout, cluster.Config.UserAgent
	config.BearerToken, config.CertData, config.KeyData = login.Token, login.Certificate, login.PEM
	if login.Token == "" {
		if _, err := tls.X509KeyPair(login.Certificate, login.PEM); err != nil {
			return false, nil //nolint:nilerr // a certificate that is not one of this key is not accepted
		}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, nil //nolint:nilerr // what no client can use is not accepted
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case refused(err):
		return false, nil
	case err != nil:
		return false, cluster.Explain("try home's credentials", err)
	}
	return review.Status.UserInfo.Username == user, nil
}

// refused says whether an error is that of credentials that are not taken; an
// API server may refuse a certificate before it answers any request.
func refused(err error) bool {
	var alert tls.AlertError
	var operation *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil, errors.As(err, &unknown):
		return false
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), errors.As(err, &alert):
		return true
	}
	return errors.As(err, &operation) && operation.Op == "remote error"
}
