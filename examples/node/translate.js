'use strict';
// Dragoman from Node.js: one call with a deadline and the published retry policy, and a stream.
//
//     npm ci
//     node translate.js "The cat sleeps." "The dog barks."
//     node translate.js --from de --to en "Die Katze schläft."
//     node translate.js --stream --server translate.example:50051 --ca ca.pem < english.txt
//
// The API key, where the server asks for one, comes from DRAGOMAN_API_KEY. Exit code 1: some texts failed; 3: no answer.

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { Readable, pipeline } = require('node:stream');
const { parseArgs } = require('node:util');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTOS = path.join(__dirname, '..', '..', 'protos');

/** A client for `host:port`; with `ca`, a file of certificates in PEM, over TLS. */
function connect(server, ca) {
  const definition = protoLoader.loadSync(path.join(PROTOS, 'translation.proto'), {
    defaults: true, // fields that are not on the wire have their default instead of being undefined
    longs: Number, // ids are our own and small
    enums: String,
  });
  const { TranslationService } = grpc.loadPackageDefinition(definition).dragoman.v1;
  const credentials = ca ? grpc.credentials.createSsl(fs.readFileSync(ca)) : grpc.credentials.createInsecure();
  return new TranslationService(server, credentials, {
    'grpc.service_config': fs.readFileSync(path.join(PROTOS, 'service_config.json'), 'utf8'),
  });
}

function metadata() {
  const pairs = new grpc.Metadata();
  if (process.env.DRAGOMAN_API_KEY) {
    pairs.set('authorization', `Bearer ${process.env.DRAGOMAN_API_KEY}`);
  }
  return pairs;
}

function deadline(seconds) {
  return new Date(Date.now() + 1000 * seconds);
}

/** Resolves to one Translation per text, in order; without `languages`, {sourceLanguage, targetLanguage}, the server chooses. */
function translate(client, texts, timeoutSeconds, languages = {}) {
  return new Promise((resolve, reject) => {
    const request = { texts, ...languages, options: { beamSize: 2 } };
    client.translate(request, metadata(), { deadline: deadline(timeoutSeconds) }, (error, response) =>
      error ? reject(error) : resolve(response.translations),
    );
  });
}

/** Yields [number of the text, Translation] in the order in which they are finished; `texts` may be any (async) iterable. */
async function* translateStream(client, texts, timeoutSeconds, languages = {}) {
  const call = client.translateStream(metadata(), { deadline: deadline(timeoutSeconds) });
  // Texts are read only while the server takes more, and not after the call has ended; the loop raises its error.
  pipeline(Readable.from(streamRequests(texts, languages)), call, () => {});
  for await (const response of call) {
    for (const { id, translation } of response.translations) {
      yield [id, translation];
    }
  }
}

async function* streamRequests(texts, languages) {
  yield { settings: { ...languages, options: { beamSize: 2 } } };
  let id = 0;
  for await (const text of texts) {
    yield { texts: [{ id: id++, text }] };
  }
}

/** Prints a translation and returns true, or prints why its text failed and returns false. */
function show(number, { status, hypotheses }) {
  if (status && status.code !== 0) {
    console.error(`text ${number}: ${status.message}`);
    return false;
  }
  console.log(`${number}\t${hypotheses[0]?.text ?? ''}`);
  return true;
}

async function all(items) {
  const list = [];
  for await (const item of items) {
    list.push(item);
  }
  return list;
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      server: { type: 'string', default: '127.0.0.1:50051' },
      ca: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      timeout: { type: 'string', default: '60' },
      stream: { type: 'boolean', default: false },
    },
  });
  const texts = positionals.length ? positionals : readline.createInterface({ input: process.stdin });
  const languages = { sourceLanguage: values.from, targetLanguage: values.to };
  const client = connect(values.server, values.ca);
  try {
    const translations = values.stream
      ? translateStream(client, texts, Number(values.timeout), languages)
      : (await translate(client, await all(texts), Number(values.timeout), languages)).entries();
    let allWell = true;
    for await (const [number, translation] of translations) {
      allWell = show(number, translation) && allWell;
    }
    process.exitCode = allWell ? 0 : 1;
  } catch (error) {
    console.error(`${grpc.status[error.code] ?? 'error'}: ${error.details ?? error.message}`);
    process.exitCode = 3;
  } finally {
    client.close();
    process.stdin.destroy(); // else the program waits for the end of its input
  }
}

if (require.main === module) {
  main();
}

module.exports = { connect, translate, translateStream };
