<?php
// Sends one request with a mistake: client.php MISTAKE, with URL, KEY and SECRET in the environment.
$mistake = $argv[1];
$key = getenv('KEY');
$secret = getenv('SECRET');
$timestamp = (string) time();
$path = '/api/v1/equipment?' . http_build_query(['category' => 'Power tools', 'page' => 2]);
$signedPath = $path;

if ($mistake === 'microtime') $timestamp = (string) microtime(true);
if ($mistake === 'date') $timestamp = date(DATE_ATOM);
if ($mistake === 'rawurlencode') $signedPath = '/api/v1/equipment?' . http_build_query(['category' => 'Power tools', 'page' => 2], '', '&', PHP_QUERY_RFC3986);
if ($mistake === 'htmlspecialchars') $signedPath = htmlspecialchars($path);
if ($mistake === 'file with a line feed') $secret .= "\n";

$message = "$timestamp\nGET\n$signedPath\n";
if ($mistake === 'single quotes') $message = $timestamp . '\n' . 'GET' . '\n' . $signedPath . '\n';
$signature = hash_hmac('sha256', $message, $secret);
if ($mistake === 'arguments swapped') $signature = hash_hmac('sha256', $secret, $message);

file_get_contents(getenv('URL') . $path, false, stream_context_create(['http' => [
    'header' => ["X-Public-Key: $key", "X-Timestamp: $timestamp", "X-Signature: $signature"],
    'ignore_errors' => true,
]]));
