// Logs in with franz-go, and tells the topics that it sees, or "refused".
//
// Arguments: HOST:PORT MECHANISM USER PASSWORD [AUTHORITY]. PASSWORD is the token of OAUTHBEARER; AUTHORITY a PEM file, for
// TLS. With "certificate" for a mechanism there is no SASL: PASSWORD is a PEM file of the client's own, or empty.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: password}.AsMechanism()
}

func main() {
	options := []kgo.Opt{kgo.SeedBrokers(os.Args[1])}
	settings := &tls.Config{}
	if os.Args[2] != "certificate" {
		options = append(options, kgo.SASL(mechanism(os.Args[2], os.Args[3], os.Args[4])))
	} else if os.Args[4] != "" {
		own, err := tls.LoadX509KeyPair(os.Args[4], os.Args[4])
		if err != nil {
			panic(err)
		}
		settings.Certificates = []tls.Certificate{own}
	}
	if len(os.Args) > 5 {
		authority, err := os.ReadFile(os.Args[5])
		if err != nil {
			panic(err)
		}
		settings.RootCAs = x509.NewCertPool()
		settings.RootCAs.AppendCertsFromPEM(authority)
		options = append(options, kgo.DialTLSConfig(settings))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	response, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if errors.Is(err, kerr.SaslAuthenticationFailed) || err != nil && strings.Contains(err.Error(), "certificate required") {
		fmt.Println("refused")
		return
	}
	if err != nil {
		panic(err)
	}
	for _, topic := range response.Topics {
		fmt.Println(*topic.Topic)
	}
}
